// SPDX-License-Identifier: MIT
#include "offline/speed/predict_speed.h"

#include <algorithm>
#include <cmath>

#include "core/machine_costs.h"
#include "offline/speed/routing_habit.h"
#include "sim/replay.h"

namespace moestro {
namespace {

// Seconds of a layer beside its products, and the barriers in them
// (bench/results/serial-2026-11-26.md: 48 us with seven barriers of a little over a microsecond).
constexpr double kLayerSeconds = 39e-6;
constexpr double kLayerBarriers = 7.0;
// Costs of missing experts as engines measured them on machines with two cores and a disk of 1 to
// 4 GB/s (Engine::ProbeCosts()): they hardly depend on the model.
constexpr double kReadLatency = 60e-6;
constexpr double kLayerWait = 20e-6;
constexpr double kFirstUse = 0.4;
constexpr double kSecondUse = 0.2;
constexpr double kComputeBeside = 1.15;
constexpr double kReadBeside = 1.05;

constexpr uint32_t kTokens = 224;
constexpr uint32_t kUncounted = 112;      // that fill the slots
constexpr uint64_t kMostChoices = 16384;  // of a token
constexpr uint64_t kSeed = 1;
constexpr double kPromptRows = 512.0;
// What a prediction is off by where routing plays no part.
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

// Decode with experts of which `slots` are in memory.
Result<double> DecodeSpeed(const ModelNeeds& needs, const MachineCosts& costs, const Trace& trace,
                           uint64_t slots) {
  ReplayOptions options{.slots = slots,
                        .policy = {.name = "next-use"},
                        .expert_bytes = needs.expert_bytes,
                        .costs = costs,
                        .count_from = kUncounted};
  TRY(const ReplayResult result, Replay(trace, options));
  return result.tokens_per_second();
}

// About `speed`, each end a factor away.
SpeedRange Around(double speed, double factor) {
  return {.low = speed / factor, .high = speed * factor};
}

class SpeedModel {
 public:
  SpeedModel(const ModelNeeds& needs, const MachineRates& rates) : needs_(needs), rates_(rates) {}

  Status Prepare() {
    if (uint64_t{needs_.shape.n_layer} * needs_.shape.n_used > kMostChoices) {
      return Fail(Errc::kUnsupported,
                  "a token chooses {} experts in each of {} layers, which is "
                  "more than any known model",
                  needs_.shape.n_used, needs_.shape.n_layer);
    }
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
              .bandwidth = rates_.disk,
              .read_latency = kReadLatency,
              .layer_wait = kLayerWait,
              .compute_beside = kComputeBeside,
              .read_beside = kReadBeside,
              .io_depth = rates_.io_depth};
    const RoutingHabit* const known = RecordedHabitOf(needs_.family);
    is_known_ = known != nullptr;
    if (!is_known_) {
      TRY(even_, TraceOf(needs_.shape, kEvenRouting, kTokens, kSeed));
    }
    TRY(recorded_, TraceOf(needs_.shape, is_known_ ? *known : kRecordedRouting, kTokens, kSeed));
    return {};
  }

  Result<SpeedRange> Decode(const Fit& fit) const {
    if (fit.slots >= fit.experts) return Around(1.0 / resident_, kMargin);
    TRY(const double recorded, DecodeSpeed(needs_, costs_, *recorded_, fit.slots));
    if (is_known_) return Around(recorded, std::sqrt(kWidestOfKnown));
    TRY(const double even, DecodeSpeed(needs_, costs_, *even_, fit.slots));
    const double low = even / std::sqrt(kMargin);
    return SpeedRange{.low = low, .high = std::min(recorded * std::sqrt(kMargin), low * kWidest)};
  }

  // A prompt needs every expert once: absent ones are read while others are computed.
  SpeedRange Prompt(const Fit& fit) const {
    const double absent = (1.0 - fit.share()) * static_cast<double>(needs_.all_experts);
    const double reading = rates_.disk > 0.0 ? absent / rates_.disk : 0.0;
    return Around(kPromptRows / std::max(kPromptRows * prompt_, reading), kMargin);
  }

 private:
  const ModelNeeds& needs_;
  const MachineRates& rates_;
  double resident_ = 0.0;  // seconds of a token
  double prompt_ = 0.0;    // seconds of a token of a prompt
  MachineCosts costs_;
  bool is_known_ = false;
  std::optional<Trace> even_;  // if the family's routing is not known
  std::optional<Trace> recorded_;
};

}  // namespace

double SpeedRange::middle() const { return std::sqrt(low * high); }

Result<double> ResidentSeconds(const ModelNeeds& needs, const MachineRates& rates) {
  TRY(const double dense, SecondsOf(needs.dense, rates, &KernelRate::decode, &WeightUse::bytes));
  TRY(const double experts,
      SecondsOf(needs.experts, rates, &KernelRate::decode, &WeightUse::bytes));
  return dense + experts + needs.n_layer * (kLayerSeconds + kLayerBarriers * rates.barrier);
}

Result<std::vector<BudgetSpeed>> PredictSpeeds(const ModelNeeds& needs, const MachineRates& rates,
                                               std::span<const Fit> fits) {
  if (!(rates.disk > 0.0)) return Fail(Errc::kInvalidRequest, "the speed of the disk is not known");
  SpeedModel model(needs, rates);
  TRY_STATUS(model.Prepare());
  std::vector<BudgetSpeed> speeds;
  for (const Fit& fit : fits) {
    TRY(const SpeedRange decode, model.Decode(fit));
    speeds.push_back({.fit = fit, .decode = decode, .prompt = model.Prompt(fit)});
  }
  return speeds;
}

}  // namespace moestro
