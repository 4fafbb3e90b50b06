// SPDX-License-Identifier: MIT
#include "sim/tune_sizes.h"

#include <algorithm>

#include "base/format.h"
#include "sim/replay.h"

namespace moestro {
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
