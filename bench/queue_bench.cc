// SPDX-License-Identifier: MIT
// What a read costs us beside the kernel: splitting, handing out, collecting and booking, with a
// disk that has every read done at once and writes nothing (empty_disk.h).
//
// s_per_request times the requests of a GiB is the CPU time of ours in it; what store_bench
// measures beyond that is the kernel's.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/number.h"
#include "empty_disk.h"
#include "residency/residency.h"
#include "store/read_queue.h"

namespace moestro {
namespace {

constexpr uint32_t kUsed = 8;  // experts of a row

void Report(benchmark::State& state, double experts, uint64_t requests) {
  using benchmark::Counter;
  const auto per_one = Counter::kIsRate | Counter::kInvert;
  state.counters["s_per_expert"] = Counter(experts, per_one);
  state.counters["s_per_request"] = Counter(static_cast<double>(requests), per_one);
}

// A layer's experts through the queue alone: three matrices each, `matrix` bytes.
void Queue(benchmark::State& state, uint64_t matrix, unsigned depth) {
  EmptyDisk reader;
  ReadQueue queue(reader, {"empty"}, {.max_in_flight = depth, .max_speculative = depth});
  auto landing = HostMemory::Allocate(WindowCapacity(matrix, reader.block()));
  if (!landing) {
    state.SkipWithError(landing.error().message.c_str());
    return;
  }
  std::vector<ExtentDone> done;
  uint64_t tag = 0;
  while (state.KeepRunning()) {
    for (uint32_t i = 0; i < kUsed * kMatrices; ++i, ++tag) {
      queue.Enqueue({.from = {.file = 0, .offset = 96 + tag % 1000 * matrix, .length = matrix},
                     .landing = landing->bytes(),
                     .tag = tag});
    }
    while (!queue.idle()) {
      done.clear();
      queue.Pump(done);
    }
  }
  Report(state, static_cast<double>(state.iterations()) * kUsed, queue.stats().requests);
}

// What the engine asks between two blocks of rows when no read is done.
void PumpForNothing(benchmark::State& state) {
  EmptyDisk reader;
  ReadQueue queue(reader, {"empty"});
  std::vector<ExtentDone> done;
  while (state.KeepRunning()) queue.Pump(done);
}

// A layer's experts through residency: all of them miss, and each evicts another one.
void Misses(benchmark::State& state, uint64_t matrix) {
  constexpr uint16_t kLayers = 48;
  constexpr uint16_t kExperts = 128;
  ExpertCatalog catalog;
  uint64_t offset = 96;
  for (uint16_t l = 0; l < kLayers; ++l) {
    for (uint16_t e = 0; e < kExperts; ++e) {
      std::array<Extent, kMatrices> slices;
      for (Extent& slice : slices) {
        slice = {.file = 0, .offset = std::exchange(offset, offset + matrix), .length = matrix};
      }
      catalog.Add(ExpertLayerId{l}, ExpertId{e}, {}, slices);
    }
  }
  EmptyDisk reader;
  ReadQueue queue(reader, {"empty"});
  const std::array<uint64_t, 1> slots{kLayers * kUsed};
  auto residency = Residency::Create(catalog, slots, {.name = "lru"}, queue);
  if (!residency) {
    state.SkipWithError(residency.error().message.c_str());
    return;
  }
  uint64_t at = 0;
  while (state.KeepRunning()) {
    const uint64_t token = at / kLayers;
    const ExpertLayerId layer{static_cast<uint16_t>(at++ % kLayers)};
    (*residency)->BeginLayer(layer);
    std::vector<Lease> leases;
    for (uint64_t k = 0; k < kUsed; ++k) {
      const auto expert = static_cast<uint16_t>((token * kUsed + k) % kExperts);
      leases.push_back(
          *(*residency)->TryAcquire({.layer = layer, .expert = {expert}}, Use::kDecode));
    }
    while (!(*residency)->idle()) (*residency)->Pump();
  }
  Report(state, static_cast<double>((*residency)->stats().misses), queue.stats().requests);
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  using moestro::kKiB;
  using moestro::kMiB;
  benchmark::RegisterBenchmark("pump/nothing", moestro::PumpForNothing);
  for (const uint64_t matrix : {864 * kKiB, 4 * kMiB, 32 * kMiB}) {
    const std::string size = std::to_string(matrix / kKiB) + "KiB";
    for (const unsigned depth : {4U, 32U}) {
      const std::string name = "queue/" + size + "/depth" + std::to_string(depth);
      benchmark::RegisterBenchmark(name.c_str(), moestro::Queue, matrix, depth);
    }
    benchmark::RegisterBenchmark(("misses/" + size).c_str(), moestro::Misses, matrix);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
