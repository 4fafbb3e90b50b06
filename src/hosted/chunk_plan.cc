// SPDX-License-Identifier: MIT
#include "hosted/chunk_plan.h"

#include <bit>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/format.h"
#include "base/log.h"

namespace moestro {
namespace {

void SayChunk(const EngineOptions& options, uint32_t usual, uint32_t chunk,
              const PlanForChunk& plan) {
  std::string enough = "a larger --cache";
  if (!options.cache) {
    EngineOptions smallest = options;
    smallest.takes_smallest = true;
    const Result<PlannedMemory> planned = plan(smallest, usual);
    if (planned) enough = Format("--ram {}M", planned->plan.smallest / kMiB);
  }
  LogWarning(
      "prompts are computed in chunks of {} rows, where {} are usual, since slots hold no more: "
      "answers are those of --chunk {}, to the bit, and slower; {} has room for the usual chunk",
      chunk, usual, chunk, enough);
}

}  // namespace

Result<ChunkPlan> PlanChunk(const EngineOptions& options, uint32_t usual,
                            const PlanForChunk& plan) {
  const bool may_shrink = options.chunk == 0;
  uint32_t chunk = options.takes_smallest && may_shrink ? 1 : usual;
  Result<PlannedMemory> planned = plan(options, chunk);
  while (!planned && planned.error().code == Errc::kInvalidRequest && may_shrink && chunk > 1) {
    chunk = std::bit_floor(chunk - 1);
    planned = plan(options, chunk);
  }
  if (!planned && !may_shrink && chunk > 1) {
    return Fail(planned.error().code, "{}; it holds the experts of --chunk {}: fewer need less",
                planned.error().message, chunk);
  }
  if (!planned) return std::unexpected(std::move(planned).error());
  if (chunk < usual && !options.takes_smallest) SayChunk(options, usual, chunk, plan);
  return ChunkPlan{.chunk = chunk, .memory = *std::move(planned)};
}

}  // namespace moestro
