// SPDX-License-Identifier: MIT
#include "offline/record/trace_shards.h"

#include <optional>
#include <utility>

#include "trace/trace_file.h"

namespace moestro {
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
