// SPDX-License-Identifier: MIT
#include "speed/predict_speed.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "core/machine.h"
#include "sim/replay.h"

namespace moestro {
namespace {

// A number from 0 to below 1, the same on every machine.
double Uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1.0p-53; }

// One layer's router.
class HabitRouter {
 public:
  HabitRouter(const MoeShape& shape, const RoutingHabit& habit, std::mt19937_64& random)
      : habit_(habit), n_used_(shape.n_used), by_rank_(shape.n_expert), sums_(shape.n_expert) {
    std::iota(by_rank_.begin(), by_rank_.end(), uint16_t{0});
    std::ranges::shuffle(by_rank_, random);
    double sum = 0.0;
    for (size_t rank = 0; rank < sums_.size(); ++rank) {
      sum += std::pow(static_cast<double>(rank) + 1.0, -habit.skew);
      sums_[rank] = sum;
    }
  }

  // K experts, each once.
  const std::vector<ExpertId>& Choose(std::mt19937_64& random) {
    last_ = OfThese(last_, habit_.again, random);
    return last_;
  }
  // K guesses at the last choice.
  std::vector<ExpertId> Foresee(std::mt19937_64& random) {
    return OfThese(last_, kForeseenShare, random);
  }

 private:
  static constexpr uint32_t kMostDraws = 16;  // for each expert

  // Chooses each of `these` with a chance of `share`, and drawn experts up to K.
  std::vector<ExpertId> OfThese(std::span<const ExpertId> these, double share,
                                std::mt19937_64& random) {
    std::vector<ExpertId> chosen;
    is_chosen_.assign(by_rank_.size(), false);
    const auto choose = [&](ExpertId e) {
      if (chosen.size() == n_used_ || is_chosen_[e.value]) return;
      is_chosen_[e.value] = true;
      chosen.push_back(e);
    };
    for (const ExpertId e : these) {
      if (Uniform(random) < share) choose(e);
    }
    for (uint32_t draws = 0; chosen.size() < n_used_ && draws < kMostDraws * n_used_; ++draws) {
      choose(Draw(random));
    }
    // Where nearly all experts are used, the remaining ones are hardly ever drawn.
    for (const uint16_t e : by_rank_) choose(ExpertId{e});
    return chosen;
  }

  ExpertId Draw(std::mt19937_64& random) const {
    const auto at = std::ranges::upper_bound(sums_, Uniform(random) * sums_.back());
    const auto rank = std::min<size_t>(static_cast<size_t>(at - sums_.begin()), sums_.size() - 1);
    return ExpertId{by_rank_[rank]};
  }

  RoutingHabit habit_;
  uint32_t n_used_;
  std::vector<uint16_t> by_rank_;  // experts, likeliest first
  std::vector<double> sums_;       // of chances up to a rank
  std::vector<ExpertId> last_;     // of the token before
  std::vector<bool> is_chosen_;    // scratch
};

// Share of the experts that tokens use and that memory lacks, without prefetch.
Result<double> MissingWith(const MoeShape& shape, const RoutingHabit& habit, uint64_t slots) {
  constexpr uint32_t kCounted = 112;
  // A prompt before a decode fills slots; more slots need more tokens.
  const auto uncounted =
      static_cast<uint32_t>(16 + 2 * slots / (uint64_t{shape.n_layer} * shape.n_used));
  TRY(const Trace trace, TraceOf(shape, habit, uncounted + kCounted, 1));
  TRY(const ReplayResult replayed,
      Replay(trace, {.slots = slots,
                     .policy = {.name = "next-use"},
                     .expert_bytes = 1,
                     .predictor = {.name = trace.info().depth > 0 ? "next-router" : "none"},
                     .count_from = uncounted}));
  return static_cast<double>(replayed.absent() + replayed.used_prefetches) /
         static_cast<double>(replayed.requests);
}

// A habit between even routing (0) and the recorded one (1), or beyond.
RoutingHabit HabitBetween(double way) {
  return {.skew = kRecordedRouting.skew * way,
          .again = kRecordedRouting.again * std::min(way, 1.0)};
}

}  // namespace

const RoutingHabit* RecordedHabitOf(std::string_view family) {
  return family == "olmoe" ? &kRecordedRouting : nullptr;
}

Result<RoutingHabit> HabitThatMisses(const MoeShape& shape, uint64_t slots, double missing) {
  constexpr double kMostWay = 3.0;
  constexpr int kSteps = 7;
  double low = 0.0;
  double high = kMostWay;
  TRY(const double even, MissingWith(shape, kEvenRouting, slots));
  if (even <= missing) return kEvenRouting;
  for (int step = 0; step < kSteps; ++step) {
    const double way = (low + high) / 2.0;
    TRY(const double lacks, MissingWith(shape, HabitBetween(way), slots));
    (lacks > missing ? low : high) = way;
  }
  return HabitBetween((low + high) / 2.0);
}

Result<Trace> TraceOf(const MoeShape& shape, const RoutingHabit& habit, uint32_t tokens,
                      uint64_t seed) {
  TRY(Trace trace,
      Trace::Create({.model = {.shape = shape}, .depth = shape.n_layer > 1 ? 1U : 0U}));
  std::mt19937_64 random(seed);
  std::vector<HabitRouter> layers;
  for (uint32_t l = 0; l < shape.n_layer; ++l) layers.emplace_back(shape, habit, random);
  trace.Reserve(tokens);
  std::vector<ExpertId> experts;
  std::vector<ExpertId> predicted;
  for (uint32_t t = 0; t < tokens; ++t) {
    experts.clear();
    predicted.clear();
    for (HabitRouter& layer : layers) {
      experts.append_range(layer.Choose(random));
      if (&layer != &layers.front()) predicted.append_range(layer.Foresee(random));
    }
    TRY_STATUS(trace.Add({.starts_sequence = t == 0, .experts = experts, .predicted = predicted}));
  }
  return trace;
}

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

  // A device to price beside this machine's CPU.
  DeviceToPrice Device(DeviceToPrice device) const {
    device.disk = costs_.bandwidth;
    device.io_depth = rates_.io_depth;
    device.resident = resident_;
    device.experts = costs_.expert_share * resident_;
    device.count_from = kUncounted;
    return device;
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

Result<std::pair<DevicePrice, DevicePrice>> SpeedPredictor::PriceDevice(
    const ModelNeeds& needs, const Fit& fit, const FixedMemory& fixed, DeviceToPrice device) const {
  FileSpeed file(needs, *rates_);
  TRY_STATUS(file.Prepare());
  const DeviceToPrice priced = file.Device(std::move(device));
  TRY(const DevicePrice recorded, moestro::PriceDevice(recorded_, needs, fit, fixed, priced));
  if (!even_) return std::pair(recorded, recorded);
  TRY(const DevicePrice even, moestro::PriceDevice(*even_, needs, fit, fixed, priced));
  return std::pair(even, recorded);
}

}  // namespace moestro
