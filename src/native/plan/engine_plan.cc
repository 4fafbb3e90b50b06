// SPDX-License-Identifier: MIT
#include "native/plan/engine_plan.h"

#include <algorithm>

#include "base/bytes.h"
#include "memory/kv_blocks.h"
#include "native/plan/prompt_chunk.h"

namespace moestro {
namespace {

// Logits of several rows are computed this many bytes at a time.
constexpr uint64_t kLogitsBytes = 4 * kMiB;

uint32_t LogitsRows(const ModelSpec& spec, uint32_t sequences, uint32_t chunk) {
  const uint64_t rows = kLogitsBytes / (uint64_t{spec.n_vocab} * sizeof(float));
  // A decode step of all sequences takes one product.
  return static_cast<uint32_t>(std::clamp<uint64_t>(std::max<uint64_t>(rows, sequences), 1, chunk));
}

constexpr uint64_t kShareForStates = 8;  // states get an eighth of the room
constexpr uint64_t kMostStates = 32;     // further states, at most

}  // namespace

Result<EnginePlan> EnginePlan::Of(const SizeRequest& request, const ModelSpec& spec,
                                  const MemoryShape& remembers) {
  EnginePlan plan{.n_ctx = std::min(request.ctx, spec.n_ctx_train)};
  if (plan.n_ctx == 0)
    return Fail(Errc::kInvalidRequest, "a context of 0 tokens holds no prompt; set --ctx");
  if (request.sequences == 0) {
    return Fail(Errc::kInvalidRequest,
                "room for 0 sequences holds no prompt; ask for at least one");
  }
  // A decode step of all sequences is computed at once.
  plan.chunk =
      std::min(ChunkFor(request.chunk, spec.router), std::max(plan.n_ctx, request.sequences));
  // A source is computed at once. Half of n_ctx_train is the trained length of a source.
  if (spec.encoder && request.chunk == 0) {
    plan.chunk = std::max(1U, std::min(plan.chunk, spec.n_ctx_train / 2));
  }
  plan.logits_rows = LogitsRows(spec, request.sequences, plan.chunk);
  plan.look_ahead = std::min(request.look_ahead, spec.n_expert_layers() - 1);
  TRY(plan.n_blocks, BlocksOf({.n_ctx = plan.n_ctx,
                               .sequences = request.sequences,
                               .common = request.common_positions,
                               .positions = request.positions}));
  plan.cells.all = plan.n_blocks * KvBlocks::kPositions;
  if (remembers.window() > 0) {
    const RecentRoom recent = RecentRoom::Of(remembers.window(), request.sequences, plan.chunk);
    if (recent.blocks < plan.n_blocks) plan.recent = recent;
    plan.cells.recent = plan.recent.cells();
  }
  plan.n_states = remembers.has_states() ? FewestStates(request.sequences) : 0;
  return plan;
}

uint32_t FurtherStates(uint64_t room_bytes, uint64_t state_bytes) {
  return static_cast<uint32_t>(std::min(room_bytes / kShareForStates / state_bytes, kMostStates));
}

}  // namespace moestro
