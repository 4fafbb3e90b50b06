// SPDX-License-Identifier: MIT
#include "sim/tune.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "sim/replay.h"

namespace moestro {
namespace {

// Shares are whole parts of this, so that a mixture has one way to be written.
constexpr int kParts = 1000;
constexpr int kGrid = 100;
constexpr std::array kShareSteps = {50, 20, 10, 5};
// Factors between neighbours on a logarithmic axis.
constexpr std::array kLogSteps = {4.0, 2.0, 1.41421356237, 1.18920711500};
// Parts of a linear axis.
constexpr std::array kLinearSteps = {0.1, 0.05, 0.02};
constexpr int kMostRounds = 4;
// Saved misses below this many square roots of their number are luck, and the default values stay:
// on the traces of bench/ such a gain is as often a loss on held-out tokens.
constexpr double kLuck = 0.5;

using Values = std::map<std::string, double>;

bool is_logarithmic(const PolicyParameter& p) { return p.min > 0.0 && p.max / p.min >= 100.0; }

// Distance of two values, as a part of the whole range.
double Apart(const PolicyParameter& p, double a, double b) {
  if (is_logarithmic(p)) return std::abs(std::log(a / b)) / std::log(p.max / p.min);
  return p.max > p.min ? std::abs(a - b) / (p.max - p.min) : 0.0;
}

ReplayOptions ReplayOf(const TuneOptions& options, const PolicyChoice& policy, size_t count_from) {
  return {.slots = options.slots,
          .policy = policy,
          .expert_bytes = options.lossy.expert_bytes,
          .lanes = options.lossy.lanes,
          .step = options.lossy.step,
          .lossy = options.lossy.lossy,
          .low_slots = options.lossy.low_slots,
          .low_bytes = options.lossy.low_bytes,
          .norms = options.lossy.norms,
          .count_from = count_from};
}

// The first half of the training tokens only warms up. Counting it, too, would find the parameters
// that fill an empty cache best, which are others (docs/policies-results.md has the figures).
Result<ReplayResult> ReplayTraining(const Trace& training, const TuneOptions& options,
                                    const PolicyChoice& policy) {
  return Replay(training, ReplayOf(options, policy, training.tokens() / 2));
}

// More digits would claim to know more than the search does.
double ThreeDigits(double value) {
  if (value == 0.0) return value;
  const double unit = std::pow(10.0, 2.0 - std::floor(std::log10(std::abs(value))));
  return std::round(value * unit) / unit;
}

class Search {
 public:
  Search(const Trace& training, const PolicyInfo& info, const TuneOptions& options)
      : training_(training), info_(info), options_(options) {
    for (const PolicyParameter& p : info.parameters) {
      defaults_.emplace(p.name, p.default_value);
      if (p.is_share && is_searched(p)) shares_.emplace_back(p.name);
    }
  }

  Result<PolicyChoice> Run() {
    best_ = defaults_;
    TRY(const double default_penalty, Penalty(defaults_));
    best_penalty_ = default_penalty;
    if (!shares_.empty()) TRY_STATUS(TryMixtures(0, kParts, defaults_));
    for (const int step : kShareSteps) TRY_STATUS(MoveShares(step));
    for (size_t fineness = 0; fineness < kLogSteps.size(); ++fineness) {
      for (int round = 0; round < kMostRounds; ++round) {
        const Values before = best_;
        for (const PolicyParameter& p : info_.parameters) {
          if (!p.is_share && is_searched(p)) TRY_STATUS(TryAxis(p, fineness));
        }
        if (best_ == before) break;
      }
    }
    const double gain = default_penalty - best_penalty_;
    const double luck = kLuck * std::sqrt(default_penalty);
    return Choice(gain > luck ? best_ : defaults_);
  }

 private:
  bool is_searched(const PolicyParameter& p) const {
    return !p.is_idle || options_.lossy.low_bytes > 0;
  }
  PolicyChoice Choice(const Values& values) const {
    return {.name = std::string(info_.name), .parameters = values};
  }

  Result<double> Penalty(const Values& values) {
    const auto [found, is_new] = penalties_.try_emplace(values, 0.0);
    if (!is_new) return found->second;
    TRY(const ReplayResult result, ReplayTraining(training_, options_, Choice(values)));
    found->second = result.penalty;
    if (options_.progress) options_.progress(penalties_.size());
    return found->second;
  }

  Status Try(const Values& values) {
    TRY(const double penalty, Penalty(values));
    if (penalty < best_penalty_ ||
        (penalty == best_penalty_ && FromStandard(values) < FromStandard(best_))) {
      best_ = values;
      best_penalty_ = penalty;
    }
    return {};
  }

  double FromStandard(const Values& values) const {
    double sum = 0.0;
    for (const PolicyParameter& p : info_.parameters) {
      sum += Apart(p, values.find(std::string(p.name))->second, p.default_value);
    }
    return sum;
  }

  // Tries every mixture of the shares from `index` on that uses up `left` parts. REQUIRES: at least
  // one share is left.
  Status TryMixtures(size_t index, int left, Values values) {
    if (index + 1 == shares_.size()) {
      values[shares_[index]] = static_cast<double>(left) / kParts;
      return Try(values);
    }
    for (int parts = 0; parts <= left; parts += kGrid) {
      values[shares_[index]] = static_cast<double>(parts) / kParts;
      TRY_STATUS(TryMixtures(index + 1, left - parts, values));
    }
    return {};
  }

  // Moves `step` parts from one share to another for as long as that helps.
  Status MoveShares(int step) {
    for (Values before; before != best_;) {
      before = best_;
      for (const std::string& from : shares_) {
        for (const std::string& to : shares_) {
          Values moved = before;
          const auto parts = static_cast<int>(std::lround(moved[from] * kParts)) - step;
          if (from == to || parts < 0) continue;
          moved[from] = static_cast<double>(parts) / kParts;
          moved[to] = (std::round(moved[to] * kParts) + step) / kParts;
          TRY_STATUS(Try(moved));
        }
      }
    }
    return {};
  }

  // The whole axis at first, then the two neighbours of the best at ever smaller distances.
  Status TryAxis(const PolicyParameter& p, size_t fineness) {
    const std::string name(p.name);
    const bool is_log = is_logarithmic(p);
    const double linear = kLinearSteps[std::min(fineness, kLinearSteps.size() - 1)];
    const double step = is_log ? kLogSteps[fineness] : linear * (p.max - p.min);
    const auto next = [&](double value, double sign) {
      return ThreeDigits(is_log ? value * std::pow(step, sign) : value + sign * step);
    };
    for (const double sign : {-1.0, 1.0}) {
      Values moved = best_;
      double value = next(moved[name], sign);
      while (value >= p.min && value <= p.max) {
        moved[name] = value;
        TRY_STATUS(Try(moved));
        if (fineness > 0) break;
        value = next(value, sign);
      }
    }
    return {};
  }

  const Trace& training_;
  const PolicyInfo& info_;
  const TuneOptions& options_;
  std::vector<std::string> shares_;  // shares that are searched
  Values defaults_;
  Values best_;
  double best_penalty_ = 0.0;
  std::map<Values, double> penalties_;  // of every candidate so far
};

Result<Trace> FirstTokens(const Trace& trace, size_t count) {
  TraceInfo info = trace.info();
  info.depth = 0;
  TRY(Trace first, Trace::Create(std::move(info)));
  for (size_t t = 0; t < count; ++t) {
    TraceToken token = trace.token(t);
    token.predicted = token.little.predicted = {};
    token.predicted_weights = token.little.predicted_weights = {};
    TRY_STATUS(first.Add(token));
  }
  return first;
}

}  // namespace

size_t TrainingTokens(const Trace& trace, double percent) {
  return static_cast<size_t>(static_cast<double>(trace.tokens()) * percent / 100.0);
}

Result<TunedPolicy> Tune(const Trace& trace, const TuneOptions& options) {
  if (!(options.train_percent > 0.0 && options.train_percent < 100.0)) {
    return Fail(Errc::kUsage, "{} % of the tokens cannot be trained on; give 1 to 99",
                options.train_percent);
  }
  // Checks the name first: Replay() would report it unknown for every candidate.
  TRY([[maybe_unused]] const auto policy, MakePolicy({.name = options.policy}));
  const std::vector<PolicyInfo> known = KnownPolicies();
  const auto info = std::ranges::find(known, options.policy, &PolicyInfo::name);
  const size_t count = TrainingTokens(trace, options.train_percent);
  TRY(const Trace training, FirstTokens(trace, count));
  Search search(training, *info, options);
  TunedPolicy tuned;
  TRY(tuned.choice, search.Run());
  TRY(tuned.training, ReplayTraining(training, options, tuned.choice));
  TRY(tuned.held_out, Replay(trace, ReplayOf(options, tuned.choice, count)));
  TRY(tuned.held_out_standard, Replay(trace, ReplayOf(options, {.name = options.policy}, count)));
  if (tuned.training.tokens == 0 || tuned.held_out.tokens == 0) {
    return Fail(Errc::kInvalidRequest,
                "{} decode tokens to train on and {} to report on: both need some; record a "
                "longer trace or change the training share",
                tuned.training.tokens, tuned.held_out.tokens);
  }
  return tuned;
}

namespace {

constexpr const char* kAll = "all";
constexpr const char* kPlain[] = {"lru", "lfu", "lfru", "belady"};

std::vector<std::string> PoliciesOf(const TuneRequest& request) {
  if (request.policy != kAll) return {request.policy};
  std::vector<std::string> names;
  for (const PolicyInfo& info : KnownPolicies()) names.emplace_back(info.name);
  return names;
}

Result<TunedAtSize> TuneSize(
    const Trace& trace, const TuneRequest& request, uint64_t slots,
    const std::function<void(const std::string& what, size_t tried)>& progress) {
  const uint64_t experts = trace.info().shape().experts();
  TunedAtSize size{.slots = slots,
                   .percent = 100.0 * static_cast<double>(slots) / static_cast<double>(experts)};
  for (const std::string& policy : PoliciesOf(request)) {
    const std::string what = Format("tuning {} for {} slots", policy, slots);
    TRY(TunedPolicy tuned, Tune(trace, {.policy = policy,
                                        .slots = slots,
                                        .train_percent = request.train_percent,
                                        .lossy = request.lossy,
                                        .progress = [&](size_t tried) { progress(what, tried); }}));
    size.tuned.push_back(std::move(tuned));
  }
  // The sort is stable, so that of equals the first listed stays first.
  std::ranges::stable_sort(size.tuned, {},
                           [](const TunedPolicy& tuned) { return tuned.training.penalty; });
  for (const char* name : kPlain) {
    ReplayOptions replay = request.lossy;
    replay.slots = slots;
    replay.policy = {.name = name};
    replay.count_from = TrainingTokens(trace, request.train_percent);
    // Belady's rule has neither copies nor devices.
    const bool has_limit = replay.lossy.is_exact(replay.low_bytes > 0) && !replay.lanes;
    if (replay.policy.name == "belady" && !has_limit) continue;
    TRY(const ReplayResult result, Replay(trace, replay));
    size.plain.push_back({.name = name, .hit_rate = result.hit_rate(), .penalty = result.penalty});
  }
  return size;
}

}  // namespace

Result<std::string> ParseTunedPolicy(const std::string& text) {
  if (text == kAll) return text;
  const auto policy = MakePolicy({.name = text});
  if (policy) return text;
  return Fail(Errc::kUsage, "{}; or {}", policy.error().message, kAll);
}

Result<std::vector<TunedAtSize>> TuneSizes(
    const Trace& trace, const TuneRequest& request,
    const std::function<void(const std::string& what, size_t tried)>& progress) {
  std::vector<TunedAtSize> sizes;
  for (const uint64_t slots : request.slots) {
    TRY(TunedAtSize size, TuneSize(trace, request, slots, progress));
    sizes.push_back(std::move(size));
  }
  return sizes;
}

PolicyTuning ToTuning(const TraceInfo& info, const std::vector<TunedAtSize>& sizes) {
  PolicyTuning tuning{.model = info.model};
  for (const TunedAtSize& size : sizes) {
    const TunedPolicy& winner = size.tuned.front();
    tuning.sizes.push_back({.slots = size.slots,
                            .choice = winner.choice,
                            .hit_rate = winner.held_out.hit_rate(),
                            .standard_hit_rate = winner.held_out_standard.hit_rate()});
  }
  return tuning;
}

}  // namespace moestro
