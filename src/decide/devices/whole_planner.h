// SPDX-License-Identifier: MIT
// Chooses how many of a model's last layers the first device computes whole: with all experts
// there, no row leaves the device between these layers, and nobody waits for a router. Their cold
// experts take slots from the hot experts of the other layers, so a machine with dear borders and
// even routers has many such layers, one with cheap borders and hot experts few or none. (Engines
// that offload by layers have the first part alone, caches of experts the second.) Pure functions
// of values.
#pragma once

#include <cstdint>
#include <span>

#include "decide/devices/lane_planner.h"
#include "decide/devices/latency_model.h"

namespace moestro {

// Whether a layer that the first device computes whole, without a border and launches of its own,
// takes no longer than one whose experts the CPU shares. Such a layer also waits for its router's
// logits, about as long as a launch takes. The device has all experts, of `bytes` each; a row uses
// n_used of them. PlaceMode::kAuto compares, kGpuCentric has the device compute all, the other
// modes have the CPU compute a share.
bool WholeLayersPay(const LatencyModel& model, PlaceMode mode, uint64_t bytes, uint32_t n_used);

struct WholeCase {
  uint32_t n_layers = 0;  // with experts
  uint32_t n_expert = 0;  // of a layer
  uint32_t n_used = 0;    // of these by a row
  uint64_t bytes = 0;     // of an expert
  uint64_t slots = 0;     // of the first device
  uint32_t most = 0;      // layers that may be whole
  // [layer][expert] Uses so far. Empty: all experts are used alike.
  std::span<const double> uses = {};
};

// Seconds of the experts of one decoded token, with borders and waits for routers where rows are on
// the device.
struct WholeChoice {
  uint32_t layers = 0;   // whole ones: the model's last
  double seconds = 0.0;  // with these whole, and the other slots for the most used experts
  double without = 0.0;  // with all slots for the most used experts
};

// The whole layers with which a token is expected to take least. Memory is taken to hold the
// experts that the device lacks. Whole layers must gain `least_gain` of the time without, since
// uses to come are guessed. PlaceMode::kAuto; 0 layers in other modes.
WholeChoice ChooseWhole(const WholeCase& of, const LatencyModel& model, PlaceMode mode,
                        double least_gain);

// The expected seconds as in WholeChoice, with `layers` whole.
double WholeSeconds(const WholeCase& of, const LatencyModel& model, uint32_t layers);

}  // namespace moestro
