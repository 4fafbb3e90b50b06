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

// A sequence has a state, and while it is in a step another one that is being written.
constexpr uint32_t kStatesOfOne = 2;
constexpr uint64_t kShareForKept = 8;  // a part of so many
constexpr uint64_t kMostKept = 32;

// Places for states of texts that rest and of positions that texts can go back to.
uint32_t KeptStates(const SizeRequest& request, const MemoryShape& remembers,
                    const CellCounts& cells) {
  if (request.room_bytes == 0) return kStatesOfOne * request.sequences + 2;
  const uint64_t taken = remembers.cells_bytes(cells) +
                         uint64_t{kStatesOfOne} * request.sequences * remembers.state_bytes();
  const uint64_t left = request.room_bytes - std::min(taken, request.room_bytes);
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(left / kShareForKept / remembers.state_bytes(), 1, kMostKept));
}

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
  if (remembers.has_states()) {
    plan.n_states = kStatesOfOne * request.sequences + KeptStates(request, remembers, plan.cells);
  }
  return plan;
}

}  // namespace moestro
