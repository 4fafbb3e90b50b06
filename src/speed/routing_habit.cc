// SPDX-License-Identifier: MIT
#include "speed/routing_habit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <span>
#include <vector>

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

}  // namespace moestro
