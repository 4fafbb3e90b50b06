// SPDX-License-Identifier: MIT
#include "lab/shard_flags.h"

#include "base/format.h"
#include "base/json.h"
#include "offline/gguf_output.h"

namespace moestro {

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
