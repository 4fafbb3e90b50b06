// SPDX-License-Identifier: MIT
// The attention kernels by their parts, on one block of keys and values after another (heads of
// 128, halves that lie in memory as the cache has them, four key-value heads side by side).
//
//   attention_bench --benchmark_filter='avx512/'
//
// queries:8 is decode with eight heads that share keys, queries:128 a tile of a prompt. bytes/s is
// of keys and values; flops counts four per query, key and dimension.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "device/attention_kernel.h"

namespace moestro {
namespace {

constexpr uint32_t kDim = 128;
constexpr uint32_t kHeads = 4;
constexpr uint32_t kKeys = AttentionKernel::kKeys;
constexpr uint32_t kCells = 1U << 16;  // 128 MiB of keys and values, beyond any cache
constexpr size_t kStride = kDim + AttentionKernel::kMaxLanes;

struct alignas(64) Line {
  float values[16];
};

class Floats {
 public:
  explicit Floats(size_t n, float value = 0.0F) : lines_((n + 15) / 16) {
    std::fill_n(data(), n, value);
  }
  float* data() { return lines_.data()->values; }

 private:
  std::vector<Line> lines_;
};

// The engine's steps for one block: convert, turn, attend.
class Walk {
 public:
  Walk(const AttentionKernel& kernel, uint32_t n_queries)
      : kernel_(kernel),
        n_queries_(n_queries),
        ranges_(n_queries, KeyRange{.begin = 0, .end = kKeys}),
        queries_(size_t{n_queries} * kDim, 0.01F),
        scores_(size_t{n_queries} * kKeys),
        largest_(n_queries, -std::numeric_limits<float>::infinity()),
        weights_(size_t{n_queries} * AttentionKernel::kMaxLanes),
        sums_(size_t{n_queries} * kDim) {}

  void Convert() {
    constexpr size_t kRow = size_t{kHeads} * kDim;
    for (uint32_t i = 0; i < kKeys; ++i) {
      const Half* k = cache_.data() + (cell_ + i) * kRow;
      Read(k, keys_.data() + i * kStride);
      Read(k + kCells * kRow, values_.data() + i * kStride);
    }
    cell_ = (cell_ + kKeys) % kCells;
  }
  void Turn() { kernel_.turn(keys_.data(), kStride, kDim, turned_.data()); }
  void Attend() {
    kernel_.attend({.queries = queries_.data(),
                    .ranges = ranges_.data(),
                    .n_queries = n_queries_,
                    .dim_k = kDim,
                    .dim_v = kDim,
                    .keys = turned_.data(),
                    .values = values_.data(),
                    .value_stride = kStride,
                    .scores = scores_.data(),
                    .largest = largest_.data(),
                    .weights = weights_.data(),
                    .sums = sums_.data()});
  }

 private:
  void Read(const Half* from, float* to) const {
    kernel_.from_f16(reinterpret_cast<const std::byte*>(from), to, kDim);
  }

  AttentionKernel kernel_;
  uint32_t n_queries_;
  std::vector<Half> cache_ = std::vector<Half>(size_t{2} * kCells * kHeads * kDim, Half{0x3000});
  size_t cell_ = 0;
  std::vector<KeyRange> ranges_;
  Floats keys_{kKeys * kStride};
  Floats turned_{size_t{kKeys} * kDim};
  Floats values_{kKeys * kStride};
  Floats queries_;
  Floats scores_;
  std::vector<float> largest_;
  Floats weights_;
  Floats sums_;
};

benchmark::Counter Rate(double per_iteration) {
  return benchmark::Counter(per_iteration, benchmark::Counter::kIsIterationInvariantRate);
}

enum class Part : uint8_t { kConvert, kTurn, kAttend, kAll };

void Attention(benchmark::State& state, const AttentionKernel& kernel, uint32_t n_queries,
               Part part) {
  Walk walk(kernel, n_queries);
  for (auto _ : state) {
    if (part == Part::kConvert || part == Part::kAll) walk.Convert();
    if (part == Part::kTurn || part == Part::kAll) walk.Turn();
    if (part == Part::kAttend || part == Part::kAll) walk.Attend();
    benchmark::ClobberMemory();
  }
  state.counters["bytes/s"] = Rate(2.0 * kKeys * kDim * sizeof(Half));
  if (part == Part::kAttend || part == Part::kAll) {
    state.counters["flops"] = Rate(4.0 * kKeys * kDim * n_queries);
  }
}

void RegisterAll() {
  for (const AttentionKernel& kernel : AttentionKernel::AllHere()) {
    const auto add = [&](const std::string& name, uint32_t n_queries, Part part) {
      const std::string full = std::string(kernel.name) + "/" + name;
      benchmark::RegisterBenchmark(full.c_str(), Attention, kernel, n_queries, part)
          ->Threads(1)
          ->Threads(2)
          ->UseRealTime();
    };
    add("convert", 1, Part::kConvert);
    add("turn", 1, Part::kTurn);
    for (const uint32_t n_queries : {1U, 8U, 128U}) {
      add("attend/queries:" + std::to_string(n_queries), n_queries, Part::kAttend);
      add("all/queries:" + std::to_string(n_queries), n_queries, Part::kAll);
    }
  }
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  moestro::RegisterAll();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
