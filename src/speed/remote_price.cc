// SPDX-License-Identifier: MIT
#include "speed/remote_price.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/number.h"
#include "sim/replay.h"

namespace moestro {
namespace {

// Seconds of a launch's software on both ends: 0.15 to 0.2 ms on the loopback (docs/remote.md).
constexpr double kSoftware = 175e-6;
constexpr double kBitsOfByte = 8.0;
constexpr double kGiga = 1e9;
constexpr double kMilli = 1e-3;
constexpr double kFast = 10.0;  // Gbit/s from which on the usual round trip is the shorter one
constexpr double kShortTrip = 0.1e-3;

// Parses a text that is a positive number up to `most`.
std::optional<double> ParsePositive(std::string_view text, double most) {
  const std::optional<double> value = ParseNumber<double>(text);
  return value && *value > 0.0 && *value <= most ? value : std::nullopt;
}

// Stage: a layer's launch, its rows there and back, its experts' arithmetic.
LaneMachine MachineOf(const ModelNeeds& needs, const HostsToPrice& hosts) {
  const auto experts = static_cast<double>(needs.shape.n_layer) * needs.shape.n_used;
  const auto row = 2.0 * static_cast<double>(needs.row_bytes);
  const double per_byte = hosts.experts / (experts * static_cast<double>(needs.expert_bytes));
  const double bytes_per_second = hosts.network.gigabits * kGiga / kBitsOfByte;
  const DeviceCosts host{.compute = {.base = row / bytes_per_second, .per_byte = per_byte},
                         .copy = {.per_byte = 1.0 / bytes_per_second},
                         .launch = kSoftware + hosts.network.round_trip};
  LaneMachine machine;
  machine.model = {.host = {.per_byte = per_byte},
                   .disk = {.per_byte = 1.0 / hosts.disk},
                   .devices = std::vector(hosts.bytes.size(), host)};
  machine.dense = {.base = (hosts.resident - hosts.experts) / needs.shape.n_layer};
  for (const uint64_t bytes : hosts.bytes) {
    machine.device_slots.push_back(
        std::min<uint64_t>(bytes / needs.expert_bytes, needs.shape.experts()));
  }
  machine.is_settled.assign(hosts.bytes.size(), true);
  return machine;
}

}  // namespace

Result<Network> ParseNetwork(std::string_view text) {
  constexpr double kMostGigabits = 10'000.0;
  constexpr double kMostMillis = 10'000.0;
  const size_t slash = text.find('/');
  const std::optional<double> gigabits = ParsePositive(text.substr(0, slash), kMostGigabits);
  if (!gigabits) {
    return Fail(Errc::kUsage, "'{}' is no network; write Gbit/s and ms, as in 1/0.2 or 10", text);
  }
  Network network{.gigabits = *gigabits};
  if (*gigabits >= kFast) network.round_trip = kShortTrip;
  if (slash == std::string_view::npos) return network;
  const std::optional<double> millis = ParsePositive(text.substr(slash + 1), kMostMillis);
  if (!millis) {
    return Fail(Errc::kUsage, "'{}': behind the slash is the round trip in ms, as in 1/0.2", text);
  }
  network.round_trip = *millis * kMilli;
  return network;
}

Result<RemotePrice> PriceHosts(const Trace& routing, const ModelNeeds& needs, const Fit& fit,
                               const HostsToPrice& hosts) {
  ReplayOptions options{.slots = std::min(fit.slots, fit.experts),
                        .policy = {.name = "next-use"},
                        .expert_bytes = needs.expert_bytes,
                        .costs = {.io_depth = hosts.rates.io_depth},
                        .lanes = MachineOf(needs, hosts),
                        .predictor = {.name = routing.info().depth > 0 ? "next-router" : "none"},
                        .count_from = hosts.count_from};
  const auto seconds = [&](PlaceMode mode) -> Result<double> {
    options.lanes->mode = mode;
    TRY(const ReplayResult result, Replay(routing, options));
    return result.seconds / static_cast<double>(std::max<uint64_t>(result.tokens, 1));
  };
  const std::vector<uint64_t>& slots = options.lanes->device_slots;
  const auto there = static_cast<double>(std::reduce(slots.begin(), slots.end()));
  RemotePrice price{.share = std::min(1.0, there / static_cast<double>(needs.shape.experts()))};
  TRY(price.gain.without, seconds(PlaceMode::kCpu));
  TRY(price.gain.with, seconds(PlaceMode::kAuto));
  return price;
}

}  // namespace moestro
