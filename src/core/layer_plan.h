// SPDX-License-Identifier: MIT
// A decision about one layer of a step: which experts run, from which copy, where, for which rows.
// Made by decide/layer/layer_planner.h; the engine makes it true, the simulator prices it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace moestro {

// Purpose of a request for an expert.
enum class Use : uint8_t {
  kDecode,
  kPrefill,
  kPrefetch,  // a later layer may need it
};

// Processor that computes an expert, and the place of its weights.
enum class Place : uint8_t {
  kHost,    // on the CPU, from memory
  kDevice,  // on a device, from a slot there
  kCopied,  // on a device, once it has been copied to a slot there
};

// Copy that a row needs of an expert whose own copy is not in memory; strongest need first.
enum class Need : uint8_t {
  kOwn,   // the model's own copy
  kLow,   // a low copy will do
  kSkip,  // the expert may be left out (HOBBIT's third class)
  kDrop,  // left out because its weight is small
};

struct PlannedExpert {
  ExpertKey key;  // the expert, and the copy of it
  Place place = Place::kHost;
  uint32_t device = 0;      // number of the device, unless place is kHost; 0 is the first
  SlotId slot = {};         // slot of that device; unless place is kHost
  bool is_staged = false;   // kCopied, and read from the disk past memory's slots
  Use use = Use::kDecode;   // kDecode if any of its rows decodes
  bool is_present = false;  // in memory or on its way there when the plan was made
  uint32_t first_pair = 0;
  uint32_t n_pairs = 0;  // rows that are routed to the expert
};

// An expert that rows chose and that is not computed.
struct SkippedExpert {
  ExpertId expert;
  Need need = Need::kSkip;  // kSkip or kDrop
};

// An expert that leaves a device for memory, for the sake of the expert that is copied to its slot.
struct MovedExpert {
  ExpertKey key;
  uint32_t device = 0;
  SlotId slot;  // of that device
};

// Seconds from the layer's begin until a lane has done its part; 0: the lane has none.
struct LaneTimes {
  struct Device {
    double compute = 0.0;
    double copy = 0.0;  // of the experts that are copied to the device
  };
  double host = 0.0;
  double calls = 0.0;  // of `host`, in the calls of devices that compute beside the CPU
  double disk = 0.0;
  std::vector<Device> devices = {};  // [device]
  double border = 0.0;               // of rows that leave the first device and come back

  // The layer's time: that of the slowest processor, and of the border. Disk and copies are not
  // counted.
  double seconds() const {
    double latest = host;
    for (const Device& device : devices) latest = std::max(latest, device.compute);
    return border + latest;
  }
};

// When the CPU and each device had finished their parts and the results were collected, in seconds
// since the layer's begin; 0: no part.
struct LaneSeconds {
  struct Device {
    double done = 0.0;
    double collecting = 0.0;  // of `done`, in the call that waits for the results
  };
  double host = 0.0;
  double beginning = 0.0;            // of `host`, in the calls that begin launches
  std::vector<Device> devices = {};  // [device]
};

// Stands in place of a pair whose expert does not run.
inline constexpr uint32_t kNoPair = ~0U;

// Pair p is one (row, chosen expert). The pairs of an expert are neighbours, so that its results
// lie together; pair_of maps them back to router order.
struct LayerPlan {
  ExpertLayerId layer = {};
  uint32_t n_rows = 0;
  uint32_t n_used = 0;  // K
  // Each expert once: those of the CPU in the order of their requests, then those that are copied
  // to a device, then those that a device has.
  std::vector<PlannedExpert> experts = {};
  std::vector<uint32_t> row_of = {};   // [pair]
  std::vector<uint32_t> pair_of = {};  // [row][K] -> pair, or kNoPair
  std::vector<float> weights = {};     // [row][K], the router's
  // Chosen experts that are not computed. They and low copies in `experts` make a plan inexact.
  std::vector<SkippedExpert> skipped = {};
  uint32_t n_replaced = 0;  // choices of the router that gave way to a resident expert
  // [row][K]: choices of a prompt's rows, oldest first, for replacement policies; empty where
  // policies do not learn from prompts.
  std::vector<ExpertId> learned = {};
  // Moves that are made before the layer runs.
  std::vector<MovedExpert> moved_back = {};
  // With devices beside the CPU: predicted times of the lanes, and the measured ones.
  LaneTimes predicted = {};
  LaneTimes took = {};

  // Makes the plan an empty one of that many rows; vectors keep their memory.
  void Begin(ExpertLayerId of, uint32_t rows, uint32_t used) {
    layer = of;
    n_rows = rows;
    n_used = used;
    experts.clear();
    row_of.clear();
    pair_of.clear();
    weights.clear();
    skipped.clear();
    n_replaced = 0;
    learned.clear();
    moved_back.clear();
    predicted = {};
    took = {};
  }
};

}  // namespace moestro
