// SPDX-License-Identifier: MIT
// Whether remote hosts make layers of experts quicker than this machine's memory and disk alone.
// Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "decide/devices/lane_planner.h"
#include "decide/devices/latency_model.h"

namespace moestro {

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
