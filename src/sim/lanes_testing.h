// SPDX-License-Identifier: MIT
// Shared by tests of replays on lanes: traces by hand and at random, costs in round numbers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "sim/machine.h"
#include "sim/replay.h"
#include "trace/trace.h"

namespace moestro {

inline constexpr uint64_t kBytes = 1'000'000;

// Costs of an expert of 1 MB: 100 us on the CPU and 25 us for each further row; 10 us on the device
// and 1 us for each further row; 40 us to copy; 1000 us to read. A launch takes 20 us.
inline LatencyModel Simple() {
  LatencyModel model;
  model.host = {.per_byte = 100e-12, .per_row = 25e-12};
  model.disk = {.per_byte = 1000e-12};
  model.devices = {{.compute = {.per_byte = 10e-12, .per_row = 1e-12},
                    .copy = {.per_byte = 40e-12},
                    .launch = 20e-6}};
  return model;
}

struct Row {
  std::vector<uint16_t> experts;  // [layer][K]
  Phase phase = Phase::kDecode;
  bool starts_sequence = false;
  bool joins_step = false;
};

inline Trace Make(const MoeShape& shape, const std::vector<Row>& rows) {
  auto trace = Trace::Create({.model = {.shape = shape}, .expert_bytes = kBytes});
  EXPECT_TRUE(trace) << trace.error().message;
  for (const Row& row : rows) {
    std::vector<ExpertId> experts;
    for (const uint16_t e : row.experts) experts.push_back({e});
    const Status status = trace->Add({.phase = row.phase,
                                      .starts_sequence = row.starts_sequence,
                                      .joins_step = row.joins_step,
                                      .experts = experts});
    EXPECT_TRUE(status) << status.error().message;
  }
  return *std::move(trace);
}

inline ExpertKey Key(uint16_t layer, uint16_t expert) {
  return {.layer = {layer}, .expert = {expert}};
}

// All options of a replay on a machine with lanes.
struct LanesOptions {
  LatencyModel model = {};
  Cost dense = {};
  uint64_t dense_bytes = 0;
  PlaceMode mode = PlaceMode::kAuto;
  std::optional<Tiers> tiers = Tiers::kInclusive;
  uint64_t slots = 0;
  std::vector<uint64_t> device_slots = {};
  PolicyChoice policy = {};
  std::vector<ExpertKey> first = {};
  bool fills_memory = false;
  StepSize step = {};
  size_t count_from = 0;
  SlotTable::Observer observer = {};
};

inline ReplayOptions OnLanes(const LanesOptions& options) {
  return {.slots = options.slots,
          .policy = options.policy,
          .lanes = LaneMachine{.model = options.model,
                               .dense = options.dense,
                               .dense_bytes = options.dense_bytes,
                               .mode = options.mode,
                               .tiers = options.tiers,
                               .device_slots = options.device_slots,
                               .first = options.first,
                               .fills_memory = options.fills_memory},
          .step = options.step,
          .count_from = options.count_from,
          .observer = options.observer};
}

inline LanesResult Play(const Trace& trace, const LanesOptions& options) {
  const auto result = Replay(trace, OnLanes(options));
  EXPECT_TRUE(result) << result.error().message;
  return result ? result->lanes : LanesResult{};
}

// A trace whose experts are chosen at random, some much more often than others.
inline Trace RandomTrace(uint32_t seed, size_t tokens, uint32_t layers, size_t rows = 1) {
  const MoeShape shape{.n_layer = layers, .n_expert = 16, .n_used = 3};
  std::mt19937 random(seed);
  std::vector<Row> made;
  for (size_t t = 0; t < tokens; ++t) {
    Row row{.experts = {}, .starts_sequence = t % 100 == 0, .joins_step = t % rows != 0};
    for (uint32_t l = 0; l < layers; ++l) {
      const size_t begin = row.experts.size();
      while (row.experts.size() < begin + 3) {
        const double u = static_cast<double>(random() % 1000) / 1000.0;
        const auto e = static_cast<uint16_t>((static_cast<uint32_t>(u * u * 16) + l) % 16);
        if (std::find(row.experts.begin() + static_cast<ptrdiff_t>(begin), row.experts.end(), e) ==
            row.experts.end()) {
          row.experts.push_back(e);
        }
      }
    }
    made.push_back(row);
  }
  return Make(shape, made);
}

}  // namespace moestro
