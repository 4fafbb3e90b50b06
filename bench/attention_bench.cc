// SPDX-License-Identifier: MIT
// The attention kernels by their parts, on one block of keys and values after another. Two shapes:
// four key-value heads of 128 side by side, cells that lie in memory as the KV cache has them, and
// latent attention (latent/): one key of 576 values, the first 512 of which are the value.
//
//   attention_bench --benchmark_filter='avx512/'
//
// queries:8 is decode with eight heads that share keys, queries:128 a tile of a prompt. near: few
// enough cells for the second-level cache, so that memory is left out of it. bytes/s is of keys and
// values as they are stored; flops counts two per query, key and
// dimension of a key and of a value: a multiply-add each.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "compute/attention_kernel.h"

namespace moestro {
namespace {

constexpr uint32_t kKeys = AttentionKernel::kKeys;
constexpr uint32_t kFar = 1U << 16;  // cells: 128 MiB of keys and values in F16, beyond any cache
constexpr uint32_t kNear = 128;

struct Shape {
  uint32_t heads = 4;
  uint32_t dim_k = 128;
  uint32_t dim_v = 128;
  bool values_in_keys = false;
};
constexpr Shape kHeadsOf128;
constexpr Shape kLatent{.heads = 1, .dim_k = 576, .dim_v = 512, .values_in_keys = true};

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
  Walk(const AttentionKernel& kernel, const Shape& shape, uint32_t n_queries, KvType type,
       uint32_t cells)
      : kernel_(kernel),
        shape_(shape),
        to_float_(kernel.to_float(type)),
        n_queries_(n_queries),
        key_bytes_(KvBytes(type, shape.dim_k)),
        value_bytes_(shape.values_in_keys ? 0 : KvBytes(type, shape.dim_v)),
        cells_(cells),
        keys_there_(size_t{cells} * shape.heads * key_bytes_, std::byte{0x30}),
        values_there_(size_t{cells} * shape.heads * value_bytes_, std::byte{0x30}),
        ranges_(n_queries, KeyRange{.begin = 0, .end = kKeys}),
        keys_(kKeys * stride()),
        turned_(size_t{kKeys} * shape.dim_k),
        values_(kKeys * stride()),
        queries_(size_t{n_queries} * shape.dim_k, 0.01F),
        scores_(size_t{n_queries} * kKeys),
        largest_(n_queries, -std::numeric_limits<float>::infinity()),
        weights_(size_t{n_queries} * AttentionKernel::kMaxLanes),
        sums_(size_t{n_queries} * shape.dim_v) {}

  void Convert() {
    for (uint32_t i = 0; i < kKeys; ++i) {
      Convert(keys_there_, key_bytes_, i, keys_, shape_.dim_k);
      if (!shape_.values_in_keys) Convert(values_there_, value_bytes_, i, values_, shape_.dim_v);
    }
    cell_ = (cell_ + kKeys) % cells_;
    // As the engine does: the next block's.
    ahead_.clear();
    for (uint32_t i = 0; i < kKeys; ++i) {
      ahead_.push_back({.at = CellOf(keys_there_, key_bytes_, i), .bytes = key_bytes_});
      if (shape_.values_in_keys) continue;
      ahead_.push_back({.at = CellOf(values_there_, value_bytes_, i), .bytes = value_bytes_});
    }
  }
  double bytes() const { return 1.0 * kKeys * static_cast<double>(key_bytes_ + value_bytes_); }
  double flops() const { return 2.0 * kKeys * n_queries_ * (shape_.dim_k + shape_.dim_v); }
  void Turn() { kernel_.turn(keys_.data(), stride(), shape_.dim_k, turned_.data()); }
  void Attend() {
    kernel_.attend({.queries = queries_.data(),
                    .ranges = ranges_.data(),
                    .n_queries = n_queries_,
                    .dim_k = shape_.dim_k,
                    .dim_v = shape_.dim_v,
                    .keys = turned_.data(),
                    .values = shape_.values_in_keys ? keys_.data() : values_.data(),
                    .value_stride = stride(),
                    .scores = scores_.data(),
                    .largest = largest_.data(),
                    .weights = weights_.data(),
                    .sums = sums_.data(),
                    .ahead = ahead_});
  }

 private:
  size_t stride() const { return shape_.dim_k + AttentionKernel::kMaxLanes; }
  void Convert(const std::vector<std::byte>& there, size_t bytes, uint32_t i, Floats& to,
               uint32_t dim) {
    to_float_(CellOf(there, bytes, i), to.data() + i * stride(), dim);
  }
  const std::byte* CellOf(const std::vector<std::byte>& there, size_t bytes, uint32_t i) const {
    return there.data() + (cell_ + i) * shape_.heads * bytes;
  }

  AttentionKernel kernel_;
  Shape shape_;
  AttentionKernel::ToFloat to_float_;
  uint32_t n_queries_;
  size_t key_bytes_;
  size_t value_bytes_;
  uint32_t cells_;
  std::vector<std::byte> keys_there_;
  std::vector<std::byte> values_there_;
  size_t cell_ = 0;
  std::vector<KeyRange> ranges_;
  Floats keys_;
  Floats turned_;
  Floats values_;
  Floats queries_;
  Floats scores_;
  std::vector<float> largest_;
  Floats weights_;
  Floats sums_;
  std::vector<AttentionKernel::Piece> ahead_;
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
  Shape shape = kHeadsOf128;
  Part part = Part::kAll;
  KvType type = KvType::kF16;
  uint32_t cells = kFar;
  uint32_t n_queries = 1;
};

void Attention(benchmark::State& state, const Setting& s) {
  Walk walk(s.kernel, s.shape, s.n_queries, s.type, s.cells);
  for (auto _ : state) {
    if (s.part == Part::kConvert || s.part == Part::kAll) walk.Convert();
    if (s.part == Part::kTurn || s.part == Part::kAll) walk.Turn();
    if (s.part == Part::kAttend || s.part == Part::kAll) walk.Attend();
    benchmark::ClobberMemory();
  }
  state.counters["bytes/s"] = Rate(state, walk.bytes());
  if (s.part == Part::kAttend || s.part == Part::kAll) {
    state.counters["flops"] = Rate(state, walk.flops());
  }
}

void Register(const std::string& name, const Setting& setting) {
  const std::string full = std::string(setting.kernel.name) + "/" + name;
  benchmark::RegisterBenchmark(full.c_str(), Attention, setting)
      ->Threads(1)
      ->Threads(2)
      ->UseRealTime();
}

// The whole of it with cells of one type, and their conversion alone.
void RegisterCells(const std::string& name, Setting setting) {
  setting.part = Part::kConvert;
  Register("convert" + name, setting);
  setting.part = Part::kAll;
  for (const uint32_t n : {1U, 8U, 16U, 128U}) {
    setting.n_queries = n;
    Register("all" + name + "/queries:" + std::to_string(n), setting);
  }
}

void RegisterShape(const std::string& name, const AttentionKernel& kernel, const Shape& shape) {
  Setting setting{.kernel = kernel, .shape = shape, .part = Part::kTurn};
  Register("turn" + name, setting);
  setting.part = Part::kAttend;
  for (const uint32_t n : {1U, 8U, 16U, 128U}) {
    setting.n_queries = n;
    Register("attend" + name + "/queries:" + std::to_string(n), setting);
  }
  for (const KvTypeInfo& type : kKvTypes) {
    for (const uint32_t cells : {kNear, kFar}) {
      setting.type = type.type;
      setting.cells = cells;
      const std::string where = cells == kNear ? "/near" : "/far";
      RegisterCells(name + "/" + std::string(type.name) + where, setting);
    }
  }
}

void RegisterAll() {
  for (const AttentionKernel& kernel : AttentionKernel::AllHere()) {
    RegisterShape("", kernel, kHeadsOf128);
    RegisterShape("/latent", kernel, kLatent);
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
