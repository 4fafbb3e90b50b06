// SPDX-License-Identifier: MIT
// Expert kernels on cold weights: a matrix far larger than the last-level cache, walked from start
// to end over and over, in calls of 64 rows as the engine makes them.
//
//   kernel_bench --benchmark_filter='q4_0/.*/tokens:1/'
//
// weights/s is bytes of weights read per second, to be compared with `Stream`, a plain read loop
// over the same memory; flops counts two per weight and token. Two threads share the machine's
// memory bandwidth and each walk a matrix of their own. tokens:N is how many share the weights of a
// call; 2048 wide, the calls are a twelfth of an expert's gate in Qwen3-30B-A3B. "ggml" is its dot
// product in a plain loop, what its mul_mat_id does in decode. With --benchmark_format=json, what
// bench/kernels.py makes a table of.
#include <benchmark/benchmark.h>
#include <ggml.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "device/cpu_device.h"
#include "device/expert_kernel.h"
#include "device/kernels/generic.h"
#include "device/kernels/own.h"

namespace moestro {
namespace {

constexpr int64_t kIn = 2048;
constexpr size_t kMatrixBytes = size_t{512} << 20;  // per thread
constexpr int64_t kRowsPerCall = 64;

// Anonymous memory with huge pages, as the engine's slots.
class ColdBuffer {
 public:
  ColdBuffer()
      : data_(mmap(nullptr, kMatrixBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                   0)) {
    CHECK(data_ != MAP_FAILED);
    madvise(data_, kMatrixBytes, MADV_HUGEPAGE);
    std::memset(data_, 1, kMatrixBytes);
  }
  ColdBuffer(const ColdBuffer&) = delete;
  ColdBuffer& operator=(const ColdBuffer&) = delete;
  ~ColdBuffer() { munmap(data_, kMatrixBytes); }

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
};

std::vector<float> RandomFloats(size_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(engine);
  return values;
}

struct alignas(64) Line {
  std::byte bytes[64];
};

class Workload {
 public:
  Workload(const ExpertKernel& kernel, int64_t n_tokens, bool is_interleaved)
      : kernel_(kernel),
        row_bytes_(ggml_row_size(kernel.weight_type, kIn)),
        is_interleaved_(is_interleaved) {
    FillRows();
    const auto tokens = static_cast<size_t>(n_tokens);
    activations_.resize(tokens);
    results_.resize(tokens);
    for (size_t t = 0; t < tokens; ++t) {
      activations_[t].resize(kernel.activation_bytes(kIn) / sizeof(Line));
      const auto x = RandomFloats(kIn, static_cast<uint32_t>(t));
      kernel.quantise(kernel, x.data(), activations_[t].data()->bytes, kIn);
      results_[t].resize(kRowsPerCall);
      activation_pointers_.push_back(activations_[t].data()->bytes);
      out_.push_back(results_[t].data());
    }
  }

  size_t call_bytes() const { return row_bytes_ * kRowsPerCall; }

  void MultiplyNext() {
    if (at_ + 2 * call_bytes() > kMatrixBytes) at_ = 0;
    kernel_.multiply(kernel_, {.rows = weights_.data() + at_,
                               .row_bytes = row_bytes_,
                               .n_in = kIn,
                               .n_rows = kRowsPerCall,
                               .activations = activation_pointers_.data(),
                               .out = out_.data(),
                               .n_tokens = static_cast<int64_t>(out_.size()),
                               .next = weights_.data() + at_ + call_bytes(),
                               .next_bytes = call_bytes(),
                               .is_interleaved = is_interleaved_});
    at_ += call_bytes();
  }
  void InterleaveNext() {
    if (at_ + 2 * call_bytes() > kMatrixBytes) at_ = 0;
    kernel_.interleave({weights_.data() + at_, row_bytes_, kRowsPerCall}, scratch_.data());
    at_ += call_bytes();
  }

 private:
  // 64 quantised rows, repeated.
  void FillRows() {
    const auto values = RandomFloats(static_cast<size_t>(kIn * kRowsPerCall), 7);
    const std::vector<float> importance(static_cast<size_t>(kIn), 1.0F);
    ggml_quantize_chunk(kernel_.weight_type, values.data(), weights_.data(), 0, kRowsPerCall, kIn,
                        importance.data());
    scratch_.resize(ExpertKernel::kInterleavedRows * row_bytes_);
    if (is_interleaved_) InterleaveNext();
    at_ = 0;
    for (size_t at = call_bytes(); at + call_bytes() <= kMatrixBytes; at += call_bytes()) {
      std::memcpy(weights_.data() + at, weights_.data(), call_bytes());
    }
  }

  ExpertKernel kernel_;
  size_t row_bytes_;
  bool is_interleaved_;
  std::vector<std::byte> scratch_;
  ColdBuffer weights_;
  std::vector<std::vector<Line>> activations_;
  std::vector<const std::byte*> activation_pointers_;
  std::vector<std::vector<float>> results_;
  std::vector<float*> out_;
  size_t at_ = 0;
};

// Of all threads together: the library adds up what each of them says and multiplies the sum with
// the iterations of all.
benchmark::Counter Rate(const benchmark::State& state, double per_iteration) {
  return benchmark::Counter(per_iteration / state.threads(),
                            benchmark::Counter::kIsIterationInvariantRate);
}

void Kernel(benchmark::State& state, const ExpertKernel& kernel, int64_t n_tokens,
            bool is_interleaved) {
  Workload workload(kernel, n_tokens, is_interleaved);
  for (auto _ : state) workload.MultiplyNext();
  state.counters["weights/s"] = Rate(state, static_cast<double>(workload.call_bytes()));
  state.counters["flops"] = Rate(state, 2.0 * kIn * kRowsPerCall * static_cast<double>(n_tokens));
}

// The rows are read and written again.
void Interleave(benchmark::State& state, const ExpertKernel& kernel) {
  Workload workload(kernel, 1, false);
  for (auto _ : state) workload.InterleaveNext();
  state.counters["weights/s"] = Rate(state, static_cast<double>(workload.call_bytes()));
}

void Quantise(benchmark::State& state, const ExpertKernel& kernel) {
  const auto x = RandomFloats(kIn, 1);
  std::vector<Line> to(kernel.activation_bytes(kIn) / sizeof(Line));
  for (auto _ : state) {
    kernel.quantise(kernel, x.data(), to.data()->bytes, kIn);
    benchmark::ClobberMemory();
  }
}

void Stream(benchmark::State& state) {
  const ColdBuffer buffer;
  constexpr size_t kPiece = size_t{64} << 10;
  size_t at = 0;
  for (auto _ : state) {
    uint64_t sums[4] = {};
    for (size_t i = 0; i < kPiece; i += 64) {
      __builtin_prefetch(buffer.data() + at + i + 8192);
      for (size_t k = 0; k < 4; ++k) {
        uint64_t word;
        std::memcpy(&word, buffer.data() + at + i + 8 * k, sizeof(word));
        sums[k] += word;
      }
    }
    benchmark::DoNotOptimize(sums);
    at = at + 2 * kPiece > kMatrixBytes ? 0 : at + kPiece;
  }
  state.counters["weights/s"] = Rate(state, kPiece);
}

void RegisterAll() {
  const CpuTraits traits = CpuTraits::Load().value();
  benchmark::RegisterBenchmark("Stream", Stream)->Threads(1)->Threads(2)->UseRealTime();
  for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
    const auto type = static_cast<ggml_type>(t);
    std::vector<ExpertKernel> kernels;
    if (const auto generic = GenericKernel(type, traits)) kernels.push_back(*generic);
    for (const Isa isa : kIsas) {
      const auto own = OwnKernel(type, isa, traits);
      if (own && IsaWorksHere(isa)) kernels.push_back(*own);
    }
    for (const ExpertKernel& kernel : kernels) {
      const std::string name = std::string(ggml_type_name(type)) + "/" + kernel.name;
      benchmark::RegisterBenchmark((name + "/quantise").c_str(), Quantise, kernel);
      for (const int64_t n_tokens : {1, 2, 4, 8, 16, 64}) {
        const std::string full = name + "/tokens:" + std::to_string(n_tokens);
        benchmark::RegisterBenchmark(full.c_str(), Kernel, kernel, n_tokens, false)
            ->Threads(1)
            ->Threads(2)
            ->UseRealTime();
        if (kernel.interleave == nullptr) continue;
        const std::string interleaved = full + "/interleaved";
        benchmark::RegisterBenchmark(interleaved.c_str(), Kernel, kernel, n_tokens, true)
            ->Threads(1)
            ->Threads(2)
            ->UseRealTime();
      }
      if (kernel.interleave == nullptr) continue;
      benchmark::RegisterBenchmark((name + "/interleave").c_str(), Interleave, kernel)
          ->Threads(1)
          ->Threads(2)
          ->UseRealTime();
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
