// SPDX-License-Identifier: MIT
// The sizes of an engine. They follow from the user's options and the model's shape alone, before a
// file is opened or memory is taken.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "core/model_spec.h"
#include "memory/layer_memory.h"
#include "memory/recent_cells.h"

namespace moestro {

// The sizes in EngineOptions, in tokens except `sequences` and `look_ahead`.
struct SizeRequest {
  uint32_t ctx = 0;
  uint32_t chunk = 0;  // 0: plan/prompt_chunk.h
  uint32_t sequences = 1;
  uint32_t common_positions = 0;
  uint32_t positions = 0;   // 0: what the sequences need
  uint32_t look_ahead = 0;  // layers
  // What dense weights leave of the budget. Kept states take an eighth of what cells and live
  // states leave of that. 0: not known.
  uint64_t room_bytes = 0;
};

struct EnginePlan {
  uint32_t n_ctx = 0;        // tokens of a sequence, at most
  uint32_t chunk = 0;        // rows that go through a layer at once, at most
  uint32_t logits_rows = 1;  // rows whose logits are computed at once, at most
  uint32_t look_ahead = 0;   // layers whose experts are predicted, at most
  uint32_t n_blocks = 0;     // blocks of the KV cache
  CellCounts cells = {};     // cells in these blocks, and of layers with a window
  RecentRoom recent = {};    // of those cells; empty: such layers have cells of all positions
  uint32_t n_states = 0;     // places for a sequence's state; 0: no layer has a state

  // kInvalidRequest: no token or no sequence has room, or more cells than can be counted.
  static Result<EnginePlan> Of(const SizeRequest& request, const ModelSpec& spec,
                               const MemoryShape& remembers);
};

}  // namespace moestro
