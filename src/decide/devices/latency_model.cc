// SPDX-License-Identifier: MIT
#include "decide/devices/latency_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/distribution.h"
#include "base/result.h"

namespace moestro {
namespace {

constexpr size_t kParts = 3;  // base, per_byte, per_row
using Row = std::array<double, kParts>;

// Coefficients of the parts in a sample, as shares of its seconds.
Row Terms(const CostSample& sample) {
  const auto bytes = static_cast<double>(sample.bytes);
  return {1.0 / sample.seconds, bytes / sample.seconds,
          bytes * (sample.rows - 1.0) / sample.seconds};
}

// Least squares of the parts in `used` by Gauss elimination; nullopt if the samples do not separate
// the parts.
std::optional<Row> Solve(std::span<const Row> terms, unsigned used) {
  std::vector<size_t> parts;
  for (size_t p = 0; p < kParts; ++p) {
    if ((used >> p & 1U) != 0) parts.push_back(p);
  }
  const size_t n = parts.size();
  // Columns of very different size (a base of microseconds, bytes by the million) are brought to
  // one.
  std::array<double, kParts> scale{};
  for (size_t i = 0; i < n; ++i) {
    for (const Row& t : terms) scale[i] += t[parts[i]] * t[parts[i]];
    scale[i] = std::sqrt(scale[i]);
    if (scale[i] == 0.0) return std::nullopt;
  }
  std::array<std::array<double, kParts + 1>, kParts> m{};
  for (const Row& t : terms) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        m[i][j] += t[parts[i]] / scale[i] * (t[parts[j]] / scale[j]);
      }
      m[i][n] += t[parts[i]] / scale[i];  // target: the sample's seconds, 1 in shares of themselves
    }
  }
  constexpr double kSingular = 1e-9;
  for (size_t i = 0; i < n; ++i) {
    size_t pivot = i;
    for (size_t r = i + 1; r < n; ++r) {
      if (std::abs(m[r][i]) > std::abs(m[pivot][i])) pivot = r;
    }
    std::swap(m[i], m[pivot]);
    if (std::abs(m[i][i]) < kSingular) return std::nullopt;
    for (size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = m[r][i] / m[i][i];
      for (size_t c = i; c <= n; ++c) m[r][c] -= factor * m[i][c];
    }
  }
  Row found{};
  for (size_t i = 0; i < n; ++i) found[parts[i]] = m[i][n] / m[i][i] / scale[i];
  return found;
}

double SquaredMisses(std::span<const Row> terms, const Row& parts) {
  double sum = 0.0;
  for (const Row& t : terms) {
    double share = -1.0;
    for (size_t p = 0; p < kParts; ++p) share += t[p] * parts[p];
    sum += share * share;
  }
  return sum;
}

// Least ratio of a large share of the CPU to a small one, for a line through both.
constexpr double kUnlike = 1.5;

template <class Seen>
double MedianRatio(std::span<const Seen> layers) {
  std::vector<double> ratios;
  for (const Seen& one : layers) ratios.push_back(one.seconds / one.predicted);
  return Median(std::move(ratios));
}

bool is_sound(const Cost& cost) {
  return std::ranges::all_of(std::array{cost.base, cost.per_byte, cost.per_row, cost.error},
                             [](double v) { return std::isfinite(v) && v >= 0.0; });
}

}  // namespace

Cost FitCost(std::span<const CostSample> samples) {
  CHECK(!samples.empty());
  std::vector<Row> terms;
  for (const CostSample& sample : samples) {
    CHECK(sample.bytes > 0 && sample.rows > 0 && sample.seconds > 0.0);
    terms.push_back(Terms(sample));
  }
  // Every set of the three parts is tried, and the best without a negative part taken. Smaller sets
  // come first, so that a part that explains nothing stays out.
  Row best{};
  double least = std::numeric_limits<double>::infinity();
  constexpr double kBetter = 1e-9;
  for (const unsigned used : {2U, 1U, 3U, 6U, 5U, 7U}) {
    const std::optional<Row> parts = Solve(terms, used);
    if (!parts || std::ranges::any_of(*parts, [](double v) { return v < 0.0; })) continue;
    const double misses = SquaredMisses(terms, *parts);
    if (misses >= least - kBetter) continue;
    least = misses;
    best = *parts;
  }
  Cost cost{.base = best[0], .per_byte = best[1], .per_row = best[2]};
  std::vector<double> missed;
  for (const CostSample& s : samples) {
    missed.push_back(std::abs(cost.Seconds(s.bytes, s.rows) - s.seconds) / s.seconds);
  }
  cost.error = Median(std::move(missed));
  return cost;
}

Status CheckLatency(const LatencyModel& model) {
  const auto check = [](Lane lane, const Cost& cost) -> Status {
    if (is_sound(cost)) return {};
    return Fail(Errc::kInvalidRequest, "the cost '{}' has a part that is negative or no number",
                NameOf(lane));
  };
  const auto check_factor = [](double factor) -> Status {
    if (std::isfinite(factor) && factor >= 1.0) return {};
    return Fail(Errc::kInvalidRequest, "{} times as long beside other work: a factor is at least 1",
                factor);
  };
  TRY_STATUS(check(Lane::kHost, model.host));
  TRY_STATUS(check(Lane::kDisk, model.disk));
  TRY_STATUS(check_factor(model.host_beside));
  if (!std::isfinite(model.host_begin) || model.host_begin < 0.0) {
    return Fail(Errc::kInvalidRequest, "a begin of {} s is no time", model.host_begin);
  }
  for (const double seconds : {model.border, model.border_pair}) {
    if (std::isfinite(seconds) && seconds >= 0.0) continue;
    return Fail(Errc::kInvalidRequest, "a border of {} s is no time", seconds);
  }
  for (const DeviceCosts& device : model.devices) {
    TRY_STATUS(check(Lane::kDevice, device.compute));
    TRY_STATUS(check(Lane::kCopy, device.copy));
    TRY_STATUS(check_factor(device.copy_beside));
    for (const double seconds : {device.launch, device.pair, device.calls, device.begin}) {
      if (std::isfinite(seconds) && seconds >= 0.0) continue;
      return Fail(Errc::kInvalidRequest, "a launch of {} s is no time", seconds);
    }
  }
  return {};
}

const char* NameOf(Lane lane) {
  switch (lane) {
    case Lane::kHost:
      return "host";
    case Lane::kDisk:
      return "disk";
    case Lane::kDevice:
      return "device";
    case Lane::kCopy:
      return "copy";
  }
  return "";
}

size_t LatencyTracker::Index(Lane lane, size_t device) {
  if (lane == Lane::kHost) return 0;
  if (lane == Lane::kDisk) return 1;
  return kCommon + kOfDevice * device + (lane == Lane::kCopy ? 1 : 0);
}

void LatencyTracker::Observe(Lane lane, double predicted, double seconds, size_t device) {
  CHECK(seconds >= 0.0);
  if (predicted <= 0.0) return;
  History& history = lanes_[Index(lane, device)];
  history.layers[history.seen++ % kWindow] = {.predicted = predicted, .seconds = seconds};
}

void LatencyTracker::ObserveDevice(const Collected& seen, double least, double ratio,
                                   size_t device) {
  const bool is_known = seen.before <= 0.0 || seen.collecting > least;
  if (!is_known && seen.done >= seen.predicted * ratio) return;
  Observe(Lane::kDevice, seen.predicted, seen.done, device);
}

double LatencyTracker::Ratio(Lane lane, size_t device) const {
  if (lane == Lane::kHost) return HostLine().ratio;
  const std::span<const Seen> last = lanes_[Index(lane, device)].last();
  return last.size() < kWindow / 2 ? 1.0 : MedianRatio(last);
}

// The line through the medians of the third with the smallest shares and of that with the largest;
// one ratio for all if the two are alike.
LatencyTracker::Line LatencyTracker::HostLine() const {
  const std::span<const Seen> last = lanes_[Index(Lane::kHost, 0)].last();
  if (last.size() < kWindow / 2) return {};
  std::vector<Seen> by_share(last.begin(), last.end());
  std::ranges::sort(by_share, {}, &Seen::predicted);
  const size_t third = by_share.size() / 3;
  const auto middle = [](std::span<const Seen> of) {
    std::vector<double> predicted;
    std::vector<double> seconds;
    for (const Seen& one : of) {
      predicted.push_back(one.predicted);
      seconds.push_back(one.seconds);
    }
    return Seen{.predicted = Median(std::move(predicted)), .seconds = Median(std::move(seconds))};
  };
  const Seen small = middle(std::span(by_share).first(third));
  const Seen large = middle(std::span(by_share).last(third));
  const double ratio = (large.seconds - small.seconds) / (large.predicted - small.predicted);
  const double begin = small.seconds - ratio * small.predicted;
  if (large.predicted < kUnlike * small.predicted || ratio <= 0.0 || begin <= 0.0) {
    return {.ratio = MedianRatio(last)};
  }
  return {.ratio = ratio, .begin = begin};
}

LaneRatios LatencyTracker::ratios() const {
  const Line host = HostLine();
  LaneRatios ratios{.host = host.ratio, .host_begin = host.begin, .disk = Ratio(Lane::kDisk)};
  for (size_t d = 0; d < (lanes_.size() - kCommon) / kOfDevice; ++d) {
    ratios.devices.push_back({.compute = Ratio(Lane::kDevice, d), .copy = Ratio(Lane::kCopy, d)});
  }
  return ratios;
}

LatencyModel LatencyTracker::Refitted(const LatencyModel& model) const {
  const auto times = [](const Cost& cost, double ratio) {
    return Cost{.base = cost.base * ratio,
                .per_byte = cost.per_byte * ratio,
                .per_row = cost.per_row * ratio,
                .error = cost.error};
  };
  const LaneRatios ratio = ratios();
  CHECK(ratio.devices.size() == model.devices.size());
  LatencyModel refitted = model;
  refitted.host = times(model.host, ratio.host);
  refitted.host_begin += ratio.host_begin;
  refitted.disk = times(model.disk, ratio.disk);
  for (size_t d = 0; d < model.devices.size(); ++d) {
    DeviceCosts& its = refitted.devices[d];
    its.compute = times(its.compute, ratio.devices[d].compute);
    its.launch *= ratio.devices[d].compute;
    its.copy = times(its.copy, ratio.devices[d].copy);
  }
  if (!ratio.devices.empty()) refitted.border *= ratio.devices.front().compute;
  return refitted;
}

}  // namespace moestro
