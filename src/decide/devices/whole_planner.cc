// SPDX-License-Identifier: MIT
#include "decide/devices/whole_planner.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <vector>

#include "base/result.h"

namespace moestro {
namespace {

// Seconds of a whole layer's experts.
double SecondsOfWhole(const LatencyModel& model, uint64_t bytes, uint32_t n_used) {
  return n_used * model.devices.front().compute.Seconds(bytes);
}

// Seconds of a layer of whose experts the device has `there`. If the rows are on the device, the
// wait for the router's logits is included.
double SecondsOfShared(const LatencyModel& model, uint64_t bytes, uint32_t n_used, uint32_t there) {
  std::vector<LaneJob> jobs(n_used, {.bytes = bytes});
  for (uint32_t k = 0; k < there; ++k) jobs[k].on_device = 0;
  const std::vector<std::vector<uint32_t>> room(model.devices.size(), {0});
  const double wait = model.border > 0.0 ? model.devices.front().launch : 0.0;
  return wait + PlanLanes(jobs, model, PlaceMode::kAuto, room).cost();
}

// The probabilities that the device has 0, 1, ..., n of n experts, each with probability p.
std::vector<double> Binomial(uint32_t n, double p) {
  std::vector<double> chances = {1.0};
  for (uint32_t i = 0; i < n; ++i) {
    chances.push_back(0.0);
    for (size_t k = chances.size() - 1; k > 0; --k) {
      chances[k] = chances[k] * (1.0 - p) + chances[k - 1] * p;
    }
    chances[0] *= 1.0 - p;
  }
  return chances;
}

// Prices divisions of the slots between whole layers and hot experts.
class Prices {
 public:
  Prices(const WholeCase& of, const LatencyModel& model)
      : of_(of), whole_(SecondsOfWhole(model, of.bytes, of.n_used)) {
    for (uint32_t there = 0; there <= of.n_used; ++there) {
      shared_.push_back(SecondsOfShared(model, of.bytes, of.n_used, there));
    }
  }

  double Seconds(uint32_t layers) const {
    const uint32_t others = of_.n_layers - layers;
    const uint64_t left = of_.slots - std::min(of_.slots, uint64_t{layers} * of_.n_expert);
    double seconds = layers * whole_;
    for (const double share : SharesThere(others, left)) {
      const std::vector<double> chances = Binomial(of_.n_used, share);
      seconds += std::inner_product(chances.begin(), chances.end(), shared_.begin(), 0.0);
    }
    return seconds;
  }

 private:
  // [layer] The share of a layer's uses whose experts the device has, for the first `layers` layers
  // with so many slots for their hottest experts. Each use is judged by all others, as if it were
  // still to come: by its own count an expert would always look hot.
  std::vector<double> SharesThere(uint32_t layers, uint64_t slots) const {
    const size_t n = size_t{layers} * of_.n_expert;
    const double even =
        std::min(1.0, static_cast<double>(slots) / static_cast<double>(std::max<size_t>(n, 1)));
    std::vector<double> there(layers, even);
    if (of_.uses.empty()) return there;
    std::vector<double> sorted(of_.uses.begin(), of_.uses.begin() + static_cast<std::ptrdiff_t>(n));
    std::ranges::sort(sorted, std::greater());
    const auto is_there = [&](double uses) {
      const double others = std::max(uses - 1.0, 0.0);
      const auto equal = std::ranges::equal_range(sorted, others, std::greater());
      const auto hotter = static_cast<double>(equal.begin() - sorted.begin()) - 1.0;  // not itself
      const double left = static_cast<double>(slots) - hotter;
      return std::clamp(left / (static_cast<double>(equal.size()) + 1.0), 0.0, 1.0);
    };
    for (uint32_t layer = 0; layer < layers; ++layer) {
      const auto its = of_.uses.subspan(size_t{layer} * of_.n_expert, of_.n_expert);
      const double all = std::reduce(its.begin(), its.end());
      if (all <= 0.0) continue;
      there[layer] = 0.0;
      for (const double uses : its) {
        if (uses > 0.0) there[layer] += uses * is_there(uses) / all;
      }
    }
    return there;
  }

  const WholeCase& of_;
  double whole_;
  std::vector<double> shared_;  // [experts there]
};

}  // namespace

bool WholeLayersPay(const LatencyModel& model, PlaceMode mode, uint64_t bytes, uint32_t n_used) {
  if (mode != PlaceMode::kAuto) return mode == PlaceMode::kGpuCentric;
  if (model.border <= 0.0) return false;  // rows are in memory anyway
  return SecondsOfWhole(model, bytes, n_used) <= SecondsOfShared(model, bytes, n_used, n_used);
}

double WholeSeconds(const WholeCase& of, const LatencyModel& model, uint32_t layers) {
  return Prices(of, model).Seconds(layers);
}

WholeChoice ChooseWhole(const WholeCase& of, const LatencyModel& model, PlaceMode mode,
                        double least_gain) {
  CHECK(of.uses.empty() || of.uses.size() == size_t{of.n_layers} * of.n_expert);
  const Prices prices(of, model);
  const double without = prices.Seconds(0);
  WholeChoice best{.layers = 0, .seconds = without, .without = without};
  if (mode != PlaceMode::kAuto || model.border <= 0.0) return best;
  for (uint32_t layers = 1; layers <= of.most; ++layers) {
    const double seconds = prices.Seconds(layers);
    if (seconds < best.seconds) best = {.layers = layers, .seconds = seconds, .without = without};
  }
  if (best.seconds > (1.0 - least_gain) * without) best = {.seconds = without, .without = without};
  return best;
}

}  // namespace moestro
