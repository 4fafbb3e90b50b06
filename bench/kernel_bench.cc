// SPDX-License-Identifier: MIT
// Expert kernels on cold weights: a matrix far larger than the last-level cache, walked from start
// to end over and over, in calls of 64 rows as the engine makes them.
//
//   kernel_bench [--matrix=MIB] [--ggml=PLUG-IN] --benchmark_filter='q4_0/.*/tokens:1/'
//
// --matrix is its size for each thread (512): one that the caches hold shows what the processor can
// do. --ggml is the file of the libggml-cpu-*.so to compare with, instead of this machine's best.
//
// weights/s is bytes of weights read per second, to be compared with `Stream`, a plain read loop
// over the same memory; flops counts two per weight and token. Two threads share the machine's
// memory bandwidth and each walk a matrix of their own. tokens:N is how many share the weights of a
// call; 2048 wide, the calls are a twelfth of an expert's gate in Qwen3-30B-A3B. "ggml" is its dot
// product in a plain loop, what its mul_mat_id does in decode. With --benchmark_format=json, what
// bench/kernels.py and bench/kernel_table.py make tables of.
#include <benchmark/benchmark.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/backend_calls.h"
#include "compute/cpu_device.h"
#include "compute/expert_kernel.h"
#include "compute/kernels/isa.h"

namespace moestro {
namespace {

constexpr int64_t kIn = 2048;
constexpr int64_t kRowsPerCall = 64;

// Anonymous memory with huge pages, as the engine's slots.
class ColdBuffer {
 public:
  explicit ColdBuffer(size_t size)
      : size_(size),
        data_(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    CHECK(data_ != MAP_FAILED);
    madvise(data_, size, MADV_HUGEPAGE);
    std::memset(data_, 1, size);
  }
  ColdBuffer(const ColdBuffer&) = delete;
  ColdBuffer& operator=(const ColdBuffer&) = delete;
  ~ColdBuffer() { munmap(data_, size_); }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t size() const { return size_; }

 private:
  size_t size_;
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

// The rows of a call, quantised when somebody first asks: that takes ggml up to a second.
class SampleRows {
 public:
  explicit SampleRows(ggml_type type) : type_(type) {}
  // Any thread.
  const std::vector<std::byte>& Get() {
    std::call_once(made_, [this] {
      const auto values = RandomFloats(static_cast<size_t>(kIn * kRowsPerCall), 7);
      const std::vector<float> importance(static_cast<size_t>(kIn), 1.0F);
      rows_.resize(ggml_row_size(type_, kIn) * kRowsPerCall);
      ggml_quantize_chunk(type_, values.data(), rows_.data(), 0, kRowsPerCall, kIn,
                          importance.data());
    });
    return rows_;
  }

 private:
  ggml_type type_;
  std::once_flag made_;
  std::vector<std::byte> rows_;
};

// What the benchmarks of a kernel share.
struct Subject {
  ExpertKernel kernel;
  std::shared_ptr<SampleRows> rows;
  size_t matrix_bytes;  // for each thread
};

class Workload {
 public:
  Workload(const Subject& subject, int64_t n_tokens, bool is_interleaved)
      : kernel_(subject.kernel),
        row_bytes_(ggml_row_size(kernel_.weight_type, kIn)),
        is_interleaved_(is_interleaved),
        weights_(subject.matrix_bytes) {
    FillRows(subject.rows->Get());
    const auto tokens = static_cast<size_t>(n_tokens);
    activations_.resize(tokens);
    results_.resize(tokens);
    for (size_t t = 0; t < tokens; ++t) {
      activations_[t].resize(kernel_.activation_bytes(kIn) / sizeof(Line));
      const auto x = RandomFloats(kIn, static_cast<uint32_t>(t));
      kernel_.quantise(kernel_, x.data(), activations_[t].data()->bytes, kIn);
      results_[t].resize(kRowsPerCall);
      activation_pointers_.push_back(activations_[t].data()->bytes);
      out_.push_back(results_[t].data());
    }
  }

  size_t call_bytes() const { return row_bytes_ * kRowsPerCall; }

  void MultiplyNext() {
    if (at_ + 2 * call_bytes() > weights_.size()) at_ = 0;
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
    if (at_ + 2 * call_bytes() > weights_.size()) at_ = 0;
    kernel_.interleave({weights_.data() + at_, row_bytes_, kRowsPerCall}, scratch_.data());
    at_ += call_bytes();
  }

 private:
  // `rows`, repeated.
  void FillRows(const std::vector<std::byte>& rows) {
    CHECK(2 * rows.size() <= weights_.size());
    std::memcpy(weights_.data(), rows.data(), rows.size());
    scratch_.resize(ExpertKernel::kInterleavedRows * row_bytes_);
    if (is_interleaved_) InterleaveNext();
    at_ = 0;
    for (size_t at = call_bytes(); at + call_bytes() <= weights_.size(); at += call_bytes()) {
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

void Kernel(benchmark::State& state, const Subject& subject, int64_t n_tokens,
            bool is_interleaved) {
  Workload workload(subject, n_tokens, is_interleaved);
  for (auto _ : state) workload.MultiplyNext();
  state.counters["weights/s"] = Rate(state, static_cast<double>(workload.call_bytes()));
  state.counters["flops"] = Rate(state, 2.0 * kIn * kRowsPerCall * static_cast<double>(n_tokens));
}

// The rows are read and written again.
void Interleave(benchmark::State& state, const Subject& subject) {
  Workload workload(subject, 1, false);
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

void Stream(benchmark::State& state, size_t matrix_bytes) {
  const ColdBuffer buffer(matrix_bytes);
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
    at = at + 2 * kPiece > matrix_bytes ? 0 : at + kPiece;
  }
  state.counters["weights/s"] = Rate(state, kPiece);
}

void RegisterAll(size_t matrix_bytes) {
  const CpuTraits traits = CpuTraits::Load().value();
  benchmark::RegisterBenchmark("Stream", Stream, matrix_bytes)
      ->Threads(1)
      ->Threads(2)
      ->UseRealTime();
  for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
    const auto type = static_cast<ggml_type>(t);
    std::vector<ExpertKernel> kernels;
    if (const auto generic = GenericKernel(type, traits)) kernels.push_back(*generic);
    for (const Isa& isa : IsasHere()) {
      const auto own = OwnKernel(type, isa, traits);
      if (own) kernels.push_back(*own);
    }
    const auto rows = std::make_shared<SampleRows>(type);
    for (const ExpertKernel& kernel : kernels) {
      const Subject subject{kernel, rows, matrix_bytes};
      const std::string name = std::string(ggml_type_name(type)) + "/" + kernel.name;
      benchmark::RegisterBenchmark((name + "/quantise").c_str(), Quantise, kernel);
      for (const int64_t n_tokens : {1, 2, 4, 8, 16, 64}) {
        const std::string full = name + "/tokens:" + std::to_string(n_tokens);
        benchmark::RegisterBenchmark(full.c_str(), Kernel, subject, n_tokens, false)
            ->Threads(1)
            ->Threads(2)
            ->UseRealTime();
        if (kernel.interleave == nullptr) continue;
        const std::string interleaved = full + "/interleaved";
        benchmark::RegisterBenchmark(interleaved.c_str(), Kernel, subject, n_tokens, true)
            ->Threads(1)
            ->Threads(2)
            ->UseRealTime();
      }
      if (kernel.interleave == nullptr) continue;
      benchmark::RegisterBenchmark((name + "/interleave").c_str(), Interleave, subject)
          ->Threads(1)
          ->Threads(2)
          ->UseRealTime();
    }
  }
}

// Takes the value of --name=value out of the arguments; nullptr without one.
const char* TakeFlag(int& argc, char** argv, std::string_view name) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(name)) continue;
    const char* const value = argv[i] + name.size();
    std::copy(argv + i + 1, argv + argc + 1, argv + i);
    --argc;
    return value;
  }
  return nullptr;
}

int Run(int argc, char** argv) {
  const char* const plug_in = TakeFlag(argc, argv, "--ggml=");
  const char* const mib = TakeFlag(argc, argv, "--matrix=");
  // Whoever finds a CPU backend loaded uses it.
  if (plug_in != nullptr) {
    LoadPlugIn(plug_in);
    if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) == nullptr) {
      std::fprintf(stderr, "--ggml: ggml cannot use %s here\n", plug_in);
      return 2;
    }
  }
  RegisterAll(size_t{mib != nullptr ? std::strtoull(mib, nullptr, 10) : 512} << 20);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) { return moestro::Run(argc, argv); }
