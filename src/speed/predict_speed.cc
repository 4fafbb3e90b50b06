// SPDX-License-Identifier: MIT
#include "speed/predict_speed.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/machine_costs.h"
#include "sim/replay.h"
#include "speed/routing_habit.h"

namespace moestro {
namespace {

// Seconds of a layer beside its products, and the barriers in them
// (bench/results/serial-2026-11-26.md: 48 us with seven barriers of a little over a microsecond).
constexpr double kLayerSeconds = 39e-6;
constexpr double kLayerBarriers = 7.0;
// Costs of missing experts as engines measured them (Engine::ProbeCosts(), medians of 17 runs of
// Qwen3-30B's, DeepSeek-V2-Lite's and Qwen3.6's shapes, bench/results/plan-2026-11-26.md).
constexpr double kReadLatency = 30e-6;
constexpr double kLayerWait = 130e-6;
constexpr double kFirstUse = 0.6;
constexpr double kSecondUse = 0.8;
constexpr double kComputeBeside = 1.05;
constexpr double kReadBeside = 1.3;
// Share of the sustained disk bandwidth that the short bursts of one layer reach. Measured in the
// runs named above.
constexpr double kBurst = 0.8;
// Factor by which a replay of a run is faster than the run, with the run's own routing and costs:
// 0.92 to 1.42, the median of 12 runs.
constexpr double kReplayGain = 1.16;

constexpr uint32_t kTokens = 224;
constexpr uint32_t kUncounted = 112;      // first tokens, which fill the slots
constexpr uint64_t kMostChoices = 16384;  // of a token
constexpr uint32_t kMostUsed = 256;       // in a layer
constexpr uint64_t kSeed = 1;
constexpr double kPromptRows = 512.0;
// Error of a prediction, as a factor, where routing has no influence.
constexpr double kMargin = 1.15;

// `rate` of a KernelRate, `use` of a WeightUse.
Result<double> SecondsOf(const UseByType& uses, const MachineRates& rates,
                         double KernelRate::* rate, uint64_t WeightUse::* use) {
  double seconds = 0.0;
  for (const auto& [type, its] : uses) {
    const KernelRate* kernel = rates.Find(type);
    if (kernel == nullptr || !(kernel->*rate > 0.0)) {
      return Fail(Errc::kInvalidRequest, "the speed of weights of type {} is not known", type);
    }
    seconds += static_cast<double>(its.*use) / (kernel->*rate);
  }
  return seconds;
}

// About `speed`, each end a factor away.
SpeedRange Around(double speed, double factor) {
  return {.low = speed / factor, .high = speed * factor};
}

// One file of the model.
class FileSpeed {
 public:
  FileSpeed(const ModelNeeds& needs, const MachineRates& rates) : needs_(needs), rates_(rates) {}

  Status Prepare() {
    TRY(const double experts,
        SecondsOf(needs_.experts, rates_, &KernelRate::decode, &WeightUse::bytes));
    TRY(resident_, ResidentSeconds(needs_, rates_));
    TRY(const double prompt_dense,
        SecondsOf(needs_.dense, rates_, &KernelRate::prompt, &WeightUse::weights));
    TRY(const double prompt_experts,
        SecondsOf(needs_.experts, rates_, &KernelRate::prompt, &WeightUse::weights));
    prompt_ = prompt_dense + prompt_experts;
    costs_ = {.compute = resident_,
              .expert_share = resident_ > 0.0 ? experts / resident_ : 0.0,
              .first_use = kFirstUse,
              .second_use = kSecondUse,
              .bandwidth = rates_.disk * kBurst,
              .read_latency = kReadLatency,
              .layer_wait = kLayerWait,
              .compute_beside = kComputeBeside,
              .read_beside = kReadBeside,
              .io_depth = rates_.io_depth};
    return {};
  }

  // `even`: nullptr if `recorded` is the model's own routing.
  Result<SpeedRange> Decode(const Fit& fit, const Trace& recorded, const Trace* even) const {
    if (fit.slots >= fit.experts) return Around(1.0 / resident_, kMargin);
    TRY(const double fast, Replayed(recorded, fit.slots));
    if (even == nullptr) return Around(fast, std::sqrt(kWidestOfKnown));
    TRY(const double slow, Replayed(*even, fit.slots));
    // With nearly all in memory rare experts are read for the first time: even routing is faster.
    const auto [least, most] = std::minmax(slow, fast);
    const double low = least / std::sqrt(kMargin);
    return SpeedRange{.low = low, .high = std::min(most * std::sqrt(kMargin), low * kWidest)};
  }

  // Hosts to price beside this machine.
  HostsToPrice Hosts(const std::vector<uint64_t>& bytes, const Network& network) const {
    return {.bytes = bytes,
            .network = network,
            .rates = rates_,
            .disk = costs_.bandwidth,
            .resident = resident_,
            .experts = costs_.expert_share * resident_,
            .count_from = kUncounted};
  }

  // A prompt needs every expert once: absent ones are read while others are computed.
  SpeedRange Prompt(const Fit& fit) const {
    const double absent = (1.0 - fit.share()) * static_cast<double>(needs_.all_experts);
    const double reading = absent / rates_.disk;
    return Around(kPromptRows / std::max(kPromptRows * prompt_, reading), kMargin);
  }

 private:
  // Tokens per second with `slots` experts in memory.
  Result<double> Replayed(const Trace& trace, uint64_t slots) const {
    TRY(const ReplayResult result,
        Replay(trace, {.slots = std::min<uint64_t>(slots, needs_.shape.experts()),
                       .policy = {.name = "next-use"},
                       .expert_bytes = needs_.expert_bytes,
                       .costs = costs_,
                       .predictor = {.name = trace.info().depth > 0 ? "next-router" : "none"},
                       .count_from = kUncounted}));
    return result.tokens_per_second() / kReplayGain;
  }

  const ModelNeeds& needs_;
  const MachineRates& rates_;
  double resident_ = 0.0;  // seconds of a token
  double prompt_ = 0.0;    // seconds of a token of a prompt
  MachineCosts costs_;
};

}  // namespace

double SpeedRange::middle() const { return std::sqrt(low * high); }

Result<double> ResidentSeconds(const ModelNeeds& needs, const MachineRates& rates) {
  TRY(const double dense, SecondsOf(needs.dense, rates, &KernelRate::decode, &WeightUse::bytes));
  TRY(const double experts,
      SecondsOf(needs.experts, rates, &KernelRate::decode, &WeightUse::bytes));
  double memory = 0.0;  // bytes per second
  for (const KernelRate& kernel : rates.kernels) memory = std::max(memory, kernel.decode);
  const double states =
      needs.state_bytes > 0 ? 2.0 * static_cast<double>(needs.state_bytes) / memory : 0.0;
  return dense + experts + states +
         needs.n_layer * (kLayerSeconds + kLayerBarriers * rates.barrier);
}

SpeedPredictor::SpeedPredictor(const MachineRates& rates, Trace recorded, std::optional<Trace> even)
    : rates_(&rates), recorded_(std::move(recorded)), even_(std::move(even)) {}

Result<SpeedPredictor> SpeedPredictor::Create(const MoeShape& shape, std::string_view family,
                                              const std::optional<SeenCaching>& seen,
                                              const MachineRates& rates) {
  if (!(rates.disk > 0.0)) return Fail(Errc::kInvalidRequest, "the speed of the disk is not known");
  if (uint64_t{shape.n_layer} * shape.n_used > kMostChoices || shape.n_used > kMostUsed) {
    return Fail(Errc::kUnsupported,
                "a token chooses {} experts in each of {} layers, which is more than any known "
                "model",
                shape.n_used, shape.n_layer);
  }
  std::optional<RoutingHabit> known;
  if (const RoutingHabit* const of_family = RecordedHabitOf(family)) known = *of_family;
  if (seen) {
    const auto slots = static_cast<uint64_t>(seen->share * static_cast<double>(shape.experts()));
    TRY(known, HabitThatMisses(shape, std::max<uint64_t>(slots, shape.n_used), seen->missing));
  }
  TRY(Trace recorded, TraceOf(shape, known.value_or(kRecordedRouting), kTokens, kSeed));
  if (known) return SpeedPredictor(rates, std::move(recorded), std::nullopt);
  TRY(Trace even, TraceOf(shape, kEvenRouting, kTokens, kSeed));
  return SpeedPredictor(rates, std::move(recorded), std::move(even));
}

Result<std::vector<BudgetSpeed>> SpeedPredictor::Predict(const ModelNeeds& needs,
                                                         std::span<const Fit> fits) const {
  FileSpeed file(needs, *rates_);
  TRY_STATUS(file.Prepare());
  std::vector<BudgetSpeed> speeds;
  for (const Fit& fit : fits) {
    TRY(const SpeedRange decode, file.Decode(fit, recorded_, even_ ? &*even_ : nullptr));
    speeds.push_back({.fit = fit, .decode = decode, .prompt = file.Prompt(fit)});
  }
  return speeds;
}

Result<RemotePrice> SpeedPredictor::PriceHosts(const ModelNeeds& needs, const Fit& fit,
                                               const std::vector<uint64_t>& host_bytes,
                                               const Network& network) const {
  FileSpeed file(needs, *rates_);
  TRY_STATUS(file.Prepare());
  return moestro::PriceHosts(recorded_, needs, fit, file.Hosts(host_bytes, network));
}

}  // namespace moestro
