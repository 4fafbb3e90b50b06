// SPDX-License-Identifier: MIT
// The sizes of an engine, which follow from the user's options and the model's shape alone, before
// a file is opened or memory is taken.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "core/model_spec.h"
#include "decide/devices/lane_planner.h"
#include "decide/devices/latency_model.h"
#include "memory/layer_memory.h"
#include "memory/recent_cells.h"

namespace moestro {

// The number of tokens of a prompt that are evaluated at once.

inline constexpr uint32_t kLeastChunk = 256;
// Tokens of a chunk where more would leave no room at all.
inline constexpr uint32_t kFewestInChunk = 32;

// A chunk with enough tokens to give each expert 64 rows, between 512 and 2048. An expert that is
// read for one chunk is read again for the next. At 64 rows multiplying takes about as long as
// reading from a disk of 2 GB/s (0.56 bytes a weight, 450 G multiply-adds and additions a second).
// More rows take memory from the slots.
uint32_t PromptChunk(const RouterSpec& router);
// `chunk`, or a half, a quarter, ... of it: the largest whose buffers, `work` bytes for `chunk`
// tokens, are half of `room` bytes at most. No fewer than kLeastChunk tokens unless `chunk` has
// fewer; without any room, half of these, but no fewer than kFewestInChunk: a slow prompt on a
// small board rather than none. (Four layers of Qwen3-30B's shape in 760 MiB: with 1024, 512, 256
// and 128 tokens 387, 381, 341 and 223 tok/s in a prompt of 2048 and 25.1, 27.2, 27.4 and 28.0 in
// decode.)
uint32_t ChunkWithin(uint32_t chunk, uint64_t work, uint64_t room);
// The requested chunk; if that is 0, PromptChunk().
uint32_t ChunkFor(uint32_t asked, const RouterSpec& router);

// The chunk where a device computes prompts but lacks some of the experts: each missing expert is
// copied for each chunk, so the chunk is long enough that an expert has about as much work there as
// its copy takes. Pure.

struct DeviceChunkCase {
  uint32_t usual = 0;  // PromptChunk()
  uint32_t n_ctx = 0;
  RouterSpec router = {};
  uint64_t expert_bytes = 0;  // of all experts
  // Bytes on the device: all that may be used; work memory for `usual` tokens; and experts' slots
  // beside it. Then work memory for `usual` tokens in this machine's memory, and slots beside it.
  uint64_t vram = 0;
  uint64_t work_there = 0;
  uint64_t slots_there = 0;
  uint64_t work_here = 0;
  uint64_t slots_here = 0;
};

inline constexpr uint32_t kMostChunk = 8192;

// `usual` or more tokens, up to kMostChunk. More work memory than for `usual` takes at most a
// sixteenth of the device's memory and an eighth of each machine's slots, so that decoding has
// about the same slots.
uint32_t DeviceChunk(const DeviceChunkCase& of);

// The sizes in EngineOptions, in tokens except `sequences` and `look_ahead`.
struct SizeRequest {
  uint32_t ctx = 0;
  uint32_t chunk = 0;  // 0: PromptChunk()
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

// Whether remote hosts make layers of experts quicker than this machine's memory and disk alone.
// Pure.

struct RemoteGain {
  double without = 0.0;  // seconds of a layer, one row
  double with = 0.0;

  double factor() const { return with > 0.0 ? without / with : 1.0; }
  // A gain of less than a twentieth is within the error of measured costs.
  bool pays() const { return factor() >= 1.05; }
};

struct RemoteCase {
  uint32_t n_used = 1;  // K
  uint64_t expert_bytes = 0;
  double in_memory = 0.0;          // the share of the experts that memory has
  std::vector<double> there = {};  // [device] the share of the experts that the device has
};

// Both costs by PlanLanes(), on average over layers whose experts are drawn evenly, from the same
// seed every time. With hosts, memory has experts that hosts lack. `mode`: kAuto or kCooperative.
// REQUIRES: the model has the devices of `there`.
RemoteGain GainOfRemotes(const RemoteCase& of, const LatencyModel& model, PlaceMode mode);

}  // namespace moestro
