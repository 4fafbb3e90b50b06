// SPDX-License-Identifier: MIT
#include "lab/record_report.h"

#include <cstdint>
#include <numeric>
#include <utility>

#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "offline/gguf_output.h"

namespace moestro {

std::string UnvisitedText(std::span<const uint32_t> unvisited, uint32_t experts) {
  const auto all = std::accumulate(unvisited.begin(), unvisited.end(), uint64_t{0});
  std::string text = Format("unvisited  {} of {} experts", all, unvisited.size() * experts);
  std::string_view mark = ": ";
  for (size_t l = 0; l < unvisited.size(); ++l) {
    if (unvisited[l] == 0) continue;
    text += Format("{}{} in layer {}", mark, unvisited[l], l);
    mark = ", ";
  }
  return text + "\n";
}

std::string DescribeImatrix(const std::string& path, const ImatrixReport& report) {
  return Format("importances {} tokens, in {}\n", report.tokens, path) +
         UnvisitedText(report.unvisited, report.experts);
}

Json ImatrixAsJson(const std::string& path, const ImatrixReport& report) {
  Json layers = Json::Array();
  for (const uint32_t unvisited : report.unvisited) layers.Push(unvisited);
  Json object = Json::Object();
  object.Set("imatrix", path)
      .Set("tokens", report.tokens)
      .Set("experts", report.experts)
      .Set("unvisited", std::move(layers));
  return object;
}

std::string DescribeProfile(const Profile& p) {
  const MoeShape& shape = p.paths.table.shape();
  std::string text = Format(
      "learned  {} tokens, {} layers of {} experts, {} used\n"
      "paths    {} keys, {} in {}\n",
      p.paths.tokens, shape.n_layer, shape.n_expert, shape.n_used, p.paths.table.keys(),
      FormatBytes(p.file_bytes), p.written.paths.text());
  if (!p.written.norms.empty())
    text += Format("norms    mean lengths of outputs, in {}\n", p.written.norms.text());
  if (p.held_out == 0) return text + "recall   not measured: fewer than five tokens\n";
  return text + Format(
                    "recall   {:.1f} % on the last {} tokens, learned from those before; {:.1f} % "
                    "by popularity, {:.1f} % by repeating the last token\n",
                    100.0 * p.recall.paths, p.held_out, 100.0 * p.recall.popular,
                    100.0 * p.recall.repeat);
}

Json ProfileAsJson(const Profile& p) {
  Json object = Json::Object();
  object.Set("paths", p.written.paths.text())
      .Set("model", p.paths.model.name)
      .Set("tokens", p.paths.tokens)
      .Set("keys", p.paths.table.keys())
      .Set("file_bytes", p.file_bytes)
      .Set("norms", p.written.norms.text())
      .Set("held_out_tokens", p.held_out);
  if (p.held_out == 0) return object;
  object.Set("recall_paths", p.recall.paths)
      .Set("recall_popular", p.recall.popular)
      .Set("recall_repeat", p.recall.repeat);
  return object;
}

Flag AddShardFlag(Flags flags, std::optional<Shard>& shard) {
  return flags.AddParsed("--shard", "I/N",
                         "work on the I-th of N shares of the texts' windows alone; -o is then a "
                         "file for 'moestro merge'",
                         [&shard](const std::string& text) -> Status {
                           TRY(shard, ParseShard(text));
                           return {};
                         });
}

Status CheckShardOutput(const OutputPath& output) {
  if (output.empty()) return Fail(Errc::kUsage, "say where the shard goes (-o FILE)");
  return CheckMayWrite(output, true);
}

std::string ShardText(const ShardInfo& shard, const std::string& path, bool json) {
  const WindowRange range = shard.range();
  if (json) {
    Json object = Json::Object();
    object.Set("shard", shard.shard.index)
        .Set("shards", shard.shard.count)
        .Set("windows", range.size())
        .Set("all_windows", shard.windows)
        .Set("file", path);
    return object.Dump() + "\n";
  }
  return Format("shard    {} of {}, {} of {} windows, in {}\n", shard.shard.index,
                shard.shard.count, range.size(), shard.windows, path);
}

}  // namespace moestro
