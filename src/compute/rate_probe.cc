// SPDX-License-Identifier: MIT
#include "compute/rate_probe.h"

#include <ggml.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "base/distribution.h"
#include "base/number.h"
#include "compute/expert_kernel.h"
#include "compute/host_memory.h"
#include "compute/row_check.h"

namespace moestro {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kPassBytes = 256 * kMiB;
constexpr double kSeconds = 0.2;
constexpr size_t kWords = 8;  // a cache line
constexpr size_t kAhead = 6144;

// Adds up 8-byte words, in sums that do not wait for each other and with lines prefetched, so that
// the loop waits for memory alone: 36 GB/s by two threads of one core without the prefetch, 43 with
// it.
uint64_t SumOf(std::span<const std::byte> bytes) {
  std::array<uint64_t, kWords> sums{};
  for (size_t at = 0; at + sizeof(sums) <= bytes.size(); at += sizeof(sums)) {
    __builtin_prefetch(bytes.data() + at + kAhead);
    std::array<uint64_t, kWords> line;
    std::memcpy(line.data(), bytes.data() + at, sizeof(line));
    for (size_t i = 0; i < kWords; ++i) sums[i] += line[i];
  }
  return std::accumulate(sums.begin(), sums.end(), uint64_t{0});
}

}  // namespace

Result<double> ProbeReadBandwidth(Team& team, std::span<const std::byte> memory) {
  if (memory.empty()) {
    return Fail(Errc::kInvalidRequest, "memory bandwidth probe: there is nothing to read");
  }
  const size_t pass = std::min(kPassBytes, memory.size());
  std::vector<uint64_t> sums(team.threads());
  const SteadyClock::time_point start = SteadyClock::now();
  SteadyClock::time_point now = start;
  double best = 0.0;
  for (size_t at = 0; now - start < std::chrono::duration<double>(kSeconds);) {
    const SteadyClock::time_point before = now;
    TRY_STATUS(team.Run([&](int thread, int n_threads) {
      const auto t = static_cast<size_t>(thread);
      const size_t part = pass / static_cast<size_t>(n_threads);
      sums[t] += SumOf(memory.subspan(at + t * part, part));
    }));
    now = SteadyClock::now();
    const double seconds = std::max(std::chrono::duration<double>(now - before).count(), 1e-9);
    best = std::max(best, static_cast<double>(pass) / seconds);
    at = at + 2 * pass <= memory.size() ? at + pass : 0;
  }
  // A volatile use of the sums, or the compiler would drop the reads.
  [[maybe_unused]] volatile uint64_t wanted =
      std::accumulate(sums.begin(), sums.end(), uint64_t{0});
  return best;
}

namespace {

constexpr int64_t kRowWeights = 2048;  // a multiple of every type's block
constexpr int64_t kPatternRows = 64;   // distinct rows; the other rows repeat them
constexpr int64_t kBlockRows = 128;    // rows of a call, as in the engine's blocks of about 256 KiB
constexpr int64_t kPromptTokens = 64;
constexpr size_t kPromptBytes = size_t{4} << 20;  // bytes of weights, which many tokens share
constexpr double kDecodeSeconds = 0.1;            // seconds of a type in a round
constexpr double kPromptSeconds = 0.05;

std::optional<ggml_type> TypeNamed(const std::string& name) {
  for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
    const auto type = static_cast<ggml_type>(i);
    if (ggml_blck_size(type) > 0 && ggml_type_name(type) == name) return type;
  }
  return std::nullopt;
}

// The median, at least kLeast: a clock may not have advanced.
double MedianOf(std::vector<double> seconds) {
  constexpr double kLeast = 1e-9;
  return std::max(Median(std::move(seconds)), kLeast);
}

// An amount of work and the time that it took.
struct Done {
  double work = 0.0;
  double seconds = 0.0;

  double rate() const { return seconds > 0.0 ? work / seconds : 0.0; }
};

// Measures one type in a round.
class RateProbe {
 public:
  RateProbe(const ExpertKernel& kernel, HostMemory& memory)
      : kernel_(kernel),
        memory_(memory),
        row_bytes_(ggml_row_size(kernel.weight_type, kRowWeights)),
        rows_(static_cast<int64_t>(memory.size() / row_bytes_) / kBlockRows * kBlockRows),
        activation_(AlignedBytes(kernel.activation_bytes(kRowWeights), kPromptTokens)) {}

  void Fill();
  // Adds bytes of weights in one token's products.
  Status Decode(Team& team, Done& done);
  // Adds weights in many tokens' products, counted once per token.
  Status Prompt(Team& team, Done& done);

 private:
  static std::vector<std::byte> AlignedBytes(size_t bytes, int64_t n) {
    return std::vector<std::byte>(bytes * static_cast<size_t>(n) + 64);
  }
  std::byte* activation(int64_t token) {
    const auto begin = (reinterpret_cast<uintptr_t>(activation_.data()) + 63) / 64 * 64;
    return reinterpret_cast<std::byte*>(begin) +
           kernel_.activation_bytes(kRowWeights) * static_cast<size_t>(token);
  }
  // Passes over `n_rows` rows until each.seconds are over; each pass adds each.work.
  Status Pass(Team& team, int64_t n_rows, int64_t n_tokens, Done each, Done& done);

  const ExpertKernel& kernel_;
  HostMemory& memory_;
  size_t row_bytes_;
  int64_t rows_;
  std::vector<std::byte> activation_;
  bool is_interleaved_ = false;
};

void RateProbe::Fill() {
  std::mt19937 random(1);
  std::vector<float> weights(static_cast<size_t>(kPatternRows * kRowWeights));
  for (float& w : weights) w = static_cast<float>(random()) * 0x1p-32F - 0.5F;
  const size_t pattern = row_bytes_ * static_cast<size_t>(kPatternRows);
  MakeUpWeights(kernel_.weight_type, weights, kRowWeights, {memory_.data(), pattern});
  if (kernel_.interleave != nullptr) {
    std::vector<std::byte> scratch(row_bytes_ * ExpertKernel::kInterleavedRows);
    kernel_.interleave({.rows = memory_.data(), .row_bytes = row_bytes_, .n_rows = kPatternRows},
                       scratch.data());
    is_interleaved_ = true;
  }
  const size_t all = row_bytes_ * static_cast<size_t>(rows_);
  for (size_t at = pattern; at < all; at += pattern) {
    std::memcpy(memory_.data() + at, memory_.data(), std::min(pattern, all - at));
  }
  for (int64_t t = 0; t < kPromptTokens; ++t) {
    kernel_.quantise(kernel_, weights.data() + t * kRowWeights, activation(t), kRowWeights);
  }
}

Status RateProbe::Pass(Team& team, int64_t n_rows, int64_t n_tokens, Done each, Done& done) {
  std::vector<const std::byte*> activations;
  for (int64_t t = 0; t < n_tokens; ++t) activations.push_back(activation(t));
  const int64_t blocks = n_rows / kBlockRows;
  auto multiply = [&](int thread, int n_threads) {
    std::vector<float> results(static_cast<size_t>(kBlockRows * n_tokens));
    std::vector<float*> out;
    for (int64_t t = 0; t < n_tokens; ++t) out.push_back(results.data() + t * kBlockRows);
    const size_t block_bytes = row_bytes_ * static_cast<size_t>(kBlockRows);
    const int64_t end = blocks * (thread + 1) / n_threads;
    for (int64_t b = blocks * thread / n_threads; b < end; ++b) {
      const std::byte* rows = memory_.data() + static_cast<size_t>(b) * block_bytes;
      const bool is_last = b + 1 == end;
      kernel_.multiply(kernel_, {.rows = rows,
                                 .row_bytes = row_bytes_,
                                 .n_in = kRowWeights,
                                 .n_rows = kBlockRows,
                                 .activations = activations.data(),
                                 .out = out.data(),
                                 .n_tokens = n_tokens,
                                 .next = is_last ? nullptr : rows + block_bytes,
                                 .next_bytes = is_last ? 0 : block_bytes,
                                 .is_interleaved = is_interleaved_});
    }
  };
  const SteadyClock::time_point start = SteadyClock::now();
  double seconds = 0.0;
  do {
    TRY_STATUS(team.Run(multiply));
    done.work += each.work;
    seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
  } while (seconds < each.seconds);
  done.seconds += seconds;
  return {};
}

Status RateProbe::Decode(Team& team, Done& done) {
  const double bytes = static_cast<double>(row_bytes_) * static_cast<double>(rows_);
  return Pass(team, rows_, 1, {.work = bytes, .seconds = kDecodeSeconds}, done);
}

Status RateProbe::Prompt(Team& team, Done& done) {
  const auto wanted = static_cast<int64_t>(kPromptBytes / row_bytes_);
  const int64_t threads = team.threads();
  const int64_t least = kBlockRows * threads;
  const int64_t rows = std::clamp(wanted / least * least, std::min(least, rows_), rows_);
  const int64_t blocks = rows / kBlockRows;
  const auto weights = static_cast<double>(blocks * kBlockRows * kRowWeights * kPromptTokens);
  return Pass(team, rows, kPromptTokens, {.work = weights, .seconds = kPromptSeconds}, done);
}

struct ProbedType {
  std::string name;
  ExpertKernel kernel;
  Done decode = {};
  Done prompt = {};
};

}  // namespace

struct KernelProbe::State {
  Team* team;
  HostMemory memory;
  std::vector<ProbedType> types = {};
};

KernelProbe::KernelProbe(std::unique_ptr<State> state) : state_(std::move(state)) {}
KernelProbe::KernelProbe(KernelProbe&& other) noexcept = default;
KernelProbe::~KernelProbe() = default;

Result<KernelProbe> KernelProbe::Create(Team& team, const std::vector<std::string>& types) {
  TRY(HostMemory memory, HostMemory::Allocate(kRateMemory));
  auto state = std::make_unique<State>(State{.team = &team, .memory = std::move(memory)});
  for (const std::string& name : types) {
    const std::optional<ggml_type> type = TypeNamed(name);
    if (!type) return Fail(Errc::kInvalidRequest, "ggml knows no type of weights '{}'", name);
    const Result<ExpertKernel> kernel = FindExpertKernel(*type);
    if (kernel) state->types.push_back({.name = name, .kernel = *kernel});
  }
  return KernelProbe(std::move(state));
}

Status KernelProbe::Round() {
  for (ProbedType& type : state_->types) {
    RateProbe probe(type.kernel, state_->memory);
    probe.Fill();
    TRY_STATUS(probe.Decode(*state_->team, type.decode));
    TRY_STATUS(probe.Prompt(*state_->team, type.prompt));
  }
  return {};
}

std::vector<KernelRate> KernelProbe::rates() const {
  std::vector<KernelRate> rates;
  for (const ProbedType& type : state_->types) {
    rates.push_back(
        {.type = type.name, .decode = type.decode.rate(), .prompt = type.prompt.rate()});
  }
  return rates;
}

Result<double> ProbeBarrier(Team& team) {
  constexpr int kRounds = 400;
  auto nothing = [](int /*thread*/, int /*n_threads*/) {};
  std::vector<double> seconds;
  Status ran;
  TRY_STATUS(team.Hold([&] {
    for (int i = 0; i < kRounds && ran; ++i) {
      const SteadyClock::time_point begun = SteadyClock::now();
      ran = team.Run(nothing);
      seconds.push_back(std::chrono::duration<double>(SteadyClock::now() - begun).count());
    }
  }));
  TRY_STATUS(ran);
  return MedianOf(std::move(seconds));
}

}  // namespace moestro
