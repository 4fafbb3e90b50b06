// SPDX-License-Identifier: MIT
#include "offline/shard_file.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "trace/trace_file.h"

namespace moestro {

Result<Shard> ParseShard(const std::string& text) {
  const std::string_view all = text;
  const size_t slash = all.find('/');
  std::optional<uint64_t> index;
  std::optional<uint64_t> count;
  if (slash != std::string_view::npos) {
    index = ParseNumber<uint64_t>(all.substr(0, slash));
    count = ParseNumber<uint64_t>(all.substr(slash + 1));
  }
  if (!index || !count || *count < 1 || *count > kMostShards) {
    return Fail(Errc::kUsage, "'{}' is no shard; write I/N, as in 2/5, with N from 1 to {}",
                Printable(text), kMostShards);
  }
  if (*index < 1 || *index > *count) {
    return Fail(Errc::kUsage, "shard {} of {} does not exist; the first is 1/{}, the last {}/{}",
                *index, *count, *count, *count, *count);
  }
  return Shard{.index = static_cast<uint32_t>(*index), .count = static_cast<uint32_t>(*count)};
}

WindowRange WindowsOf(const Shard& shard, uint64_t windows) {
  return {.begin = windows * (shard.index - 1) / shard.count,
          .end = windows * shard.index / shard.count};
}

Status CheckShardable(const EngineOptions& options) {
  const LittleOptions& little = options.little;
  if (!options.lossy.is_exact(!options.low.empty())) {
    return Fail(Errc::kUsage,
                "--shard: with --low, --drop-below or --prefer-resident a window depends on what "
                "those before it left in memory; leave them out, or run the text as a whole");
  }
  if (little.is_on() && (little.misses != Misses::kRead || little.fallback_share)) {
    return Fail(Errc::kUsage,
                "--shard: with --little-misses or --gamma-quantile a window depends on what "
                "those before it left; leave them out, or run the text as a whole");
  }
  return {};
}

std::string SettingsText(const EngineOptions& options, const WindowSettings& windows) {
  std::string text =
      Format("engine {}\nctx {}\nkv-type {}\n", windows.is_native ? "native" : "hosted",
             windows.n_ctx, NameOf(options.kv_type));
  text += Format("little {}\n", ToText(options.little));
  if (options.little.is_on()) text += Format("gamma {}\n", options.little.gamma);
  return text;
}

namespace {

constexpr FileFormat kShardFormat{
    .magic = kShardMagic,
    .version = 2,
    .oldest = 2,
    .header_bytes = 8 + 4 + 3 * 4 + 5 * 8 + 2 * 4,  // up to the settings
    .what = "a shard",
    .origin = "'moestro eval', 'imatrix', 'profile' and 'trace' write one with --shard",
    .remedy = "copy it or run that shard again"};
constexpr uint32_t kMostTextBytes = 4096;  // of settings; of a name
constexpr uint64_t kMostWindows = uint64_t{1} << 40;

std::string NameOfShard(const ShardInfo& info) {
  return Format("shard {} of {}", info.shard.index, info.shard.count);
}

Result<FoundShard> ReadShardHeader(const InputFile& source) {
  TRY(const std::string bytes, source.ReadHeader());
  Decoder decoder(bytes);
  FoundShard found{.path = source.path()};
  ShardInfo& info = found.info;
  const auto command = decoder.Take<uint32_t>();
  info.shard.index = decoder.Take<uint32_t>();
  info.shard.count = decoder.Take<uint32_t>();
  info.fingerprint = decoder.Take<uint64_t>();
  info.weights = decoder.Take<uint64_t>();
  info.text_hash = decoder.Take<uint64_t>();
  info.windows = decoder.Take<uint64_t>();
  found.payload_bytes = decoder.Take<uint64_t>();
  const auto settings_bytes = decoder.Take<uint32_t>();
  const auto name_bytes = decoder.Take<uint32_t>();
  if (command < std::to_underlying(ShardOf::kEval) ||
      command > std::to_underlying(ShardOf::kTrace)) {
    return source.Damaged(Format("it is of command {}, which does not exist", command));
  }
  info.command = ShardOf{command};
  if (info.shard.count < 1 || info.shard.count > kMostShards || info.shard.index < 1 ||
      info.shard.index > info.shard.count) {
    return source.Damaged(Format("{} does not exist", NameOfShard(info)));
  }
  if (info.windows < 1 || info.windows > kMostWindows || settings_bytes > kMostTextBytes ||
      name_bytes > kMostTextBytes) {
    return source.Damaged("its numbers are none of a shard");
  }
  found.payload_begin = kShardFormat.header_bytes + settings_bytes + name_bytes;
  const uint64_t others = found.payload_begin + kChecksumBytes;
  if (source.size() < others || source.size() - others != found.payload_bytes) {
    return source.CutShort(Format("{} bytes of payload after byte {}, and {} more",
                                  found.payload_bytes, found.payload_begin, kChecksumBytes));
  }
  if ((info.range().size() == 0) != (found.payload_bytes == 0)) {
    return source.Damaged("windows and payload contradict each other");
  }
  TRY(info.settings, source.Read(kShardFormat.header_bytes, settings_bytes));
  TRY(info.model, source.Read(kShardFormat.header_bytes + settings_bytes, name_bytes));
  return found;
}

// The first line of each text that differs from the other's.
std::pair<std::string, std::string> FirstDifference(std::string_view a, std::string_view b) {
  while (!a.empty() || !b.empty()) {
    const std::string_view line_a = a.substr(0, a.find('\n'));
    const std::string_view line_b = b.substr(0, b.find('\n'));
    if (line_a != line_b) return {Printable(line_a), Printable(line_b)};
    a.remove_prefix(std::min(a.size(), line_a.size() + 1));
    b.remove_prefix(std::min(b.size(), line_b.size() + 1));
  }
  return {};
}

// Checks that two shards are of one run. kInvalidRequest: they are not.
Status CheckSameRun(const FoundShard& first, const FoundShard& other) {
  const ShardInfo& a = first.info;
  const ShardInfo& b = other.info;
  const auto foreign = [&](const std::string& what_b, const std::string& what_a) {
    return Fail(Errc::kInvalidRequest, "{}: {}, but {} {}; merge the shards of one run", other.path,
                what_b, first.path, what_a);
  };
  if (a.command != b.command) {
    return foreign(Format("a shard of '{}'", CommandOf(b.command)),
                   Format("is one of '{}'", CommandOf(a.command)));
  }
  if (a.fingerprint != b.fingerprint) {
    return foreign(
        Format("made with the model {} (fingerprint {:016x})", Printable(b.model), b.fingerprint),
        Format("with {} ({:016x})", Printable(a.model), a.fingerprint));
  }
  if (a.weights != b.weights) {
    return foreign("made with other weights, of a model with the same header",
                   Format("with {:016x}, not {:016x}", a.weights, b.weights));
  }
  if (a.settings != b.settings) {
    const auto [line_a, line_b] = FirstDifference(a.settings, b.settings);
    return foreign(Format("made with '{}'", line_b), Format("with '{}'", line_a));
  }
  if (a.text_hash != b.text_hash || a.windows != b.windows) {
    return foreign("made of another text, or of another part of it",
                   Format("is of {} windows with the hash {:016x}", a.windows, a.text_hash));
  }
  if (a.shard.count != b.shard.count) {
    return foreign(NameOfShard(b), Format("is one of {}", a.shard.count));
  }
  return {};
}

// Checks that no shard is missing. REQUIRES: the shards are of one run, in order, none twice, at
// least one.
Status CheckComplete(std::span<const FoundShard> shards) {
  const uint32_t count = shards.front().info.shard.count;
  if (shards.size() == count) return {};
  constexpr size_t kMostNamed = 8;
  std::string missing;
  size_t named = 0;
  for (uint32_t index = 1, at = 0; index <= count && named <= kMostNamed; ++index) {
    if (at < shards.size() && shards[at].info.shard.index == index) {
      ++at;
      continue;
    }
    if (named > 0) missing += ", ";
    missing += named < kMostNamed ? Format("{}/{}", index, count) : "...";
    ++named;
  }
  return Fail(Errc::kInvalidRequest, "{} of {} shards are missing: {}; run them, then merge all",
              count - shards.size(), count, missing);
}

}  // namespace

std::string_view CommandOf(ShardOf command) {
  switch (command) {
    case ShardOf::kEval:
      return "eval";
    case ShardOf::kImatrix:
      return "imatrix";
    case ShardOf::kProfile:
      return "profile";
    case ShardOf::kTrace:
      return "trace";
  }
  return "";
}

Result<BinaryWriter> BeginShard(const OutputPath& path, const ShardInfo& info,
                                uint64_t payload_bytes) {
  const std::string name = info.model.substr(0, kMostTextBytes);
  std::string bytes = BeginHeader(kShardFormat);
  AppendNumber(bytes, std::to_underlying(info.command));
  AppendNumber(bytes, info.shard.index);
  AppendNumber(bytes, info.shard.count);
  AppendNumber(bytes, info.fingerprint);
  AppendNumber(bytes, info.weights);
  AppendNumber(bytes, info.text_hash);
  AppendNumber(bytes, info.windows);
  AppendNumber(bytes, payload_bytes);
  AppendNumber(bytes, static_cast<uint32_t>(info.settings.size()));
  AppendNumber(bytes, static_cast<uint32_t>(name.size()));
  bytes += info.settings;
  bytes += name;
  TRY(BinaryWriter file, BinaryWriter::Create(path));
  TRY_STATUS(file.Add(bytes));
  return file;
}

Status WriteShard(const OutputPath& path, const ShardInfo& info, std::string_view payload) {
  TRY(BinaryWriter file, BeginShard(path, info, payload.size()));
  TRY_STATUS(file.Add(payload));
  return file.Finish();
}

Result<std::vector<FoundShard>> FindShards(std::span<const std::string> paths) {
  std::vector<FoundShard> shards;
  for (const std::string& path : paths) {
    TRY(const InputFile source, InputFile::Open(path, kShardFormat));
    TRY(FoundShard found, ReadShardHeader(source));
    if (!shards.empty()) TRY_STATUS(CheckSameRun(shards.front(), found));
    shards.push_back(std::move(found));
  }
  const auto index = [](const FoundShard& found) { return found.info.shard.index; };
  std::ranges::stable_sort(shards, {}, index);
  const auto twice = std::ranges::adjacent_find(shards, {}, index);
  if (twice != shards.end()) {
    return Fail(Errc::kInvalidRequest, "{} and {} are both {}; give each shard once", twice->path,
                std::next(twice)->path, NameOfShard(twice->info));
  }
  TRY_STATUS(CheckComplete(shards));
  for (const FoundShard& found : shards) {  // last, because the check reads all files
    TRY(const InputFile source, InputFile::Open(found.path, kShardFormat));
    TRY_STATUS(source.CheckSum());
  }
  return shards;
}

Result<ShardPayload> ShardPayload::Open(const FoundShard& found) {
  TRY(InputFile source, InputFile::Open(found.path, kShardFormat));
  const uint64_t end = found.payload_begin + found.payload_bytes;
  if (source.size() != end + kChecksumBytes) return source.Damaged("it changes while it is read");
  return ShardPayload(std::move(source), found.payload_begin, end);
}

Result<std::string> ShardPayload::Take(uint64_t bytes) {
  if (bytes > left()) return Damaged("its payload ends too early");
  TRY(std::string taken, file_.Read(at_, static_cast<size_t>(bytes)));
  at_ += bytes;
  return taken;
}

Status ShardPayload::CheckEnd() const {
  if (left() == 0) return {};
  return Damaged(Format("its payload has {} bytes too many", left()));
}

Result<InputFile> OpenPayloadAs(const FoundShard& found, const FileFormat& format) {
  TRY(InputFile source, InputFile::Open(found.path, kShardFormat));
  if (source.size() != found.payload_begin + found.payload_bytes + kChecksumBytes) {
    return source.Damaged("it changes while it is read");
  }
  return std::move(source).Rest(found.payload_begin, format);
}

namespace {

// A trace's header without numbers of slots: they depend on free memory, and change nothing that is
// recorded.
TraceInfo WithoutSlots(TraceInfo info) {
  for (ExpertPools::Pool& pool : info.pools.pools) pool.slots = 0;
  return info;
}

Result<TraceReader> OpenTraceOf(const FoundShard& shard) {
  TRY(InputFile payload, OpenPayloadAs(shard, TraceFormat()));
  return TraceReader::Open(std::move(payload));
}

}  // namespace

Result<uint64_t> MergeTraces(std::span<const FoundShard> shards, const OutputPath& path) {
  std::optional<TraceInfo> info;
  uint64_t tokens = 0;
  for (const FoundShard& shard : shards) {
    if (shard.info.range().size() == 0) continue;
    TRY(const TraceReader reader, OpenTraceOf(shard));
    if (!info) info = reader.info();
    if (WithoutSlots(reader.info()) != WithoutSlots(*info)) {
      return Fail(Errc::kInvalidRequest,
                  "{}: its engine recorded other things of each token than the one of the shards "
                  "before it; give all shards the same flags",
                  shard.path);
    }
    if (reader.tokens() < shard.info.range().size()) {
      return Fail(Errc::kInvalidFile, "{}: {} tokens in {} windows; run that shard again",
                  shard.path, reader.tokens(), shard.info.range().size());
    }
    tokens += reader.tokens();
  }
  TRY(TraceWriter writer, TraceWriter::Create(path, *info, tokens));
  for (const FoundShard& shard : shards) {
    if (shard.info.range().size() == 0) continue;
    TRY(const TraceReader reader, OpenTraceOf(shard));
    TRY_STATUS(reader.ForEach([&](const TraceToken& token) { return writer.Add(token); }));
  }
  TRY_STATUS(writer.Finish());
  return tokens;
}

}  // namespace moestro
