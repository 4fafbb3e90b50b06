// SPDX-License-Identifier: MIT
// The attention kernels by their parts, on one block of keys and values after another (heads of
// 128, cells that lie in memory as the KV cache has them, four key-value heads side by side).
//
//   attention_bench --benchmark_filter='avx512/'
//
// queries:8 is decode with eight heads that share keys, queries:128 a tile of a prompt. near: few
// enough cells for the second-level cache, so that memory is left out of it. bytes/s is of keys and
// values as they are stored; flops counts four per query, key and dimension.
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
constexpr uint32_t kFar = 1U << 16;  // cells: 128 MiB of keys and values in F16, beyond any cache
constexpr uint32_t kNear = 128;
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
  Walk(const AttentionKernel& kernel, uint32_t n_queries, KvType type, uint32_t cells)
      : kernel_(kernel),
        to_float_(kernel.to_float(type)),
        n_queries_(n_queries),
        head_bytes_(KvBytes(type, kDim)),
        cells_(cells),
        keys_there_(size_t{cells} * kHeads * head_bytes_, std::byte{0x30}),
        values_there_(keys_there_),
        ranges_(n_queries, KeyRange{.begin = 0, .end = kKeys}),
        queries_(size_t{n_queries} * kDim, 0.01F),
        scores_(size_t{n_queries} * kKeys),
        largest_(n_queries, -std::numeric_limits<float>::infinity()),
        weights_(size_t{n_queries} * AttentionKernel::kMaxLanes),
        sums_(size_t{n_queries} * kDim) {}

  void Convert() {
    for (uint32_t i = 0; i < kKeys; ++i) {
      const size_t at = (cell_ + i) * kHeads * head_bytes_;
      to_float_(keys_there_.data() + at, keys_.data() + i * kStride, kDim);
      to_float_(values_there_.data() + at, values_.data() + i * kStride, kDim);
      // As the engine does: a block ahead.
      const size_t later = at + kKeys * kHeads * head_bytes_;
      for (size_t line = 0; line < head_bytes_; line += 64) {
        __builtin_prefetch(keys_there_.data() + later + line, 0, 2);
        __builtin_prefetch(values_there_.data() + later + line, 0, 2);
      }
    }
    cell_ = (cell_ + kKeys) % cells_;
  }
  double bytes() const { return 2.0 * kKeys * static_cast<double>(head_bytes_); }
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
  AttentionKernel kernel_;
  AttentionKernel::ToFloat to_float_;
  uint32_t n_queries_;
  size_t head_bytes_;
  uint32_t cells_;
  std::vector<std::byte> keys_there_;
  std::vector<std::byte> values_there_;
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

// Of all threads together: the library adds up what each of them says and multiplies the sum with
// the iterations of all.
benchmark::Counter Rate(const benchmark::State& state, double per_iteration) {
  return benchmark::Counter(per_iteration / state.threads(),
                            benchmark::Counter::kIsIterationInvariantRate);
}

enum class Part : uint8_t { kConvert, kTurn, kAttend, kAll };

struct Setting {
  AttentionKernel kernel;
  Part part = Part::kAll;
  KvType type = KvType::kF16;
  uint32_t cells = kFar;
  uint32_t n_queries = 1;
};

void Attention(benchmark::State& state, const Setting& s) {
  Walk walk(s.kernel, s.n_queries, s.type, s.cells);
  for (auto _ : state) {
    if (s.part == Part::kConvert || s.part == Part::kAll) walk.Convert();
    if (s.part == Part::kTurn || s.part == Part::kAll) walk.Turn();
    if (s.part == Part::kAttend || s.part == Part::kAll) walk.Attend();
    benchmark::ClobberMemory();
  }
  state.counters["bytes/s"] = Rate(state, walk.bytes());
  if (s.part == Part::kAttend || s.part == Part::kAll) {
    state.counters["flops"] = Rate(state, 4.0 * kKeys * kDim * s.n_queries);
  }
}

void Register(const std::string& name, const Setting& setting) {
  const std::string full = std::string(setting.kernel.name) + "/" + name;
  benchmark::RegisterBenchmark(full.c_str(), Attention, setting)
      ->Threads(1)
      ->Threads(2)
      ->UseRealTime();
}

void RegisterAll() {
  for (const AttentionKernel& kernel : AttentionKernel::AllHere()) {
    Register("turn", {.kernel = kernel, .part = Part::kTurn});
    for (const uint32_t n : {1U, 8U, 128U}) {
      Register("attend/queries:" + std::to_string(n),
               {.kernel = kernel, .part = Part::kAttend, .n_queries = n});
    }
    for (const KvTypeInfo& type : kKvTypes) {
      for (const uint32_t cells : {kNear, kFar}) {
        const std::string where =
            "/" + std::string(type.name) + (cells == kNear ? "/near" : "/far");
        Setting setting{
            .kernel = kernel, .part = Part::kConvert, .type = type.type, .cells = cells};
        Register("convert" + where, setting);
        setting.part = Part::kAll;
        for (const uint32_t n : {1U, 8U, 128U}) {
          setting.n_queries = n;
          Register("all" + where + "/queries:" + std::to_string(n), setting);
        }
      }
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
