// SPDX-License-Identifier: MIT
// The sizes of an engine, which follow from the user's options and the model's shape alone, before
// a file is opened or memory is taken.
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
  uint32_t chunk = 0;  // 0: native/plan/prompt_chunk.h
  uint32_t sequences = 1;
  uint32_t common_positions = 0;
  uint32_t positions = 0;   // 0: what the sequences need
  uint32_t look_ahead = 0;  // layers
};

struct EnginePlan {
  uint32_t n_ctx = 0;        // tokens of a sequence, at most
  uint32_t chunk = 0;        // rows that go through a layer at once, at most
  uint32_t logits_rows = 1;  // rows whose logits are computed at once, at most
  uint32_t look_ahead = 0;   // layers whose experts are predicted, at most
  uint32_t n_blocks = 0;     // blocks of the KV cache
  CellCounts cells = {};     // cells in these blocks, and cells of layers with a window
  // Room for recent cells; empty: layers with a window have cells of all positions.
  RecentRoom recent = {};
  uint32_t n_states = 0;  // places for a sequence's state, at least; 0: no layer has a state

  // kInvalidRequest: no token or no sequence has room, or more cells than can be counted.
  static Result<EnginePlan> Of(const SizeRequest& request, const ModelSpec& spec,
                               const MemoryShape& remembers);
};

// The fewest places for states: each sequence has a state and, while the sequence is in a step,
// another one that is being written. One more is for a position to go back to.
constexpr uint32_t FewestStates(uint32_t sequences) { return 2 * sequences + 1; }

// Places beyond FewestStates(), for texts that rest and for positions to go back to: an eighth of
// the budget beyond the smallest. REQUIRES: state_bytes > 0.
uint32_t FurtherStates(uint64_t room_bytes, uint64_t state_bytes);

}  // namespace moestro
