// SPDX-License-Identifier: MIT
// What choosing a victim costs: a full table of `slots`, one miss after the other; and what not
// having to costs.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "decide/slots/policy.h"
#include "decide/slots/slot_table.h"

namespace moestro {
namespace {

constexpr uint32_t kUsed = 8;  // experts of a row

struct ExpertsOf {
  std::string_view model;
  uint32_t layers;
  uint32_t experts;
};
constexpr ExpertsOf kModels[] = {
    {.model = "qwen3-next", .layers = 48, .experts = 512},
    {.model = "kimi-k2", .layers = 60, .experts = 384},
};

// One layer of one token: its experts requested, landed and let go; about half of them miss.
void DecodeLayer(benchmark::State& state, const std::string& name, const ExpertsOf& model) {
  auto policy = MakePolicy({.name = name});
  if (!policy) {
    state.SkipWithError(policy.error().message.c_str());
    return;
  }
  const PolicyShape shape{.slots = static_cast<size_t>(state.range(0)),
                          .layers = model.layers,
                          .experts = model.experts};
  SlotTable table(shape, std::move(*policy));
  std::mt19937 random(1);
  uint16_t layer = 0;
  const auto step = [&] {
    table.BeginLayer(ExpertLayerId{layer});
    for (uint32_t k = 0; k < kUsed; ++k) {
      const auto expert = static_cast<uint16_t>(random() % (model.experts / kUsed) * kUsed + k);
      const auto placed = table.Request({.layer = {layer}, .expert = {expert}}, Use::kDecode);
      if (placed->was == Placement::Was::kAbsent) table.Landed(placed->slot);
      table.Unpin(placed->slot);
    }
    layer = static_cast<uint16_t>((layer + 1) % model.layers);
  };
  for (uint32_t i = 0; i < 100 * model.layers; ++i) step();  // full, with a history
  const ExpertCounts before = table.stats();
  while (state.KeepRunning()) step();
  const auto misses = static_cast<double>(table.stats().misses - before.misses);
  state.counters["miss_share"] =
      misses / static_cast<double>(table.stats().requests - before.requests);
  state.counters["s_per_request"] =
      benchmark::Counter(static_cast<double>(kUsed), benchmark::Counter::kIsIterationInvariantRate |
                                                         benchmark::Counter::kInvert);
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  for (const moestro::PolicyInfo& info : moestro::KnownPolicies()) {
    const std::string name(info.name);
    for (const moestro::ExpertsOf& model : moestro::kModels) {
      const std::string full = "layer/" + std::string(model.model) + "/" + name;
      benchmark::RegisterBenchmark(full.c_str(), moestro::DecodeLayer, name, model)
          ->Arg(1000)
          ->Arg(8000)
          ->Arg(model.layers * model.experts);  // no expert ever leaves
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
