// SPDX-License-Identifier: MIT
// Predicts the gain of remote hosts for a model on a machine, before the model is fetched or the
// hosts run. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/machine.h"
#include "native/plan/engine_plan.h"
#include "native/plan/fit.h"
#include "speed/planned_model.h"
#include "trace/trace.h"

namespace moestro {

struct Network {
  double gigabits = 1.0;       // 10^9 bits per second
  double round_trip = 0.2e-3;  // seconds

  bool operator==(const Network&) const = default;
};

// "GBIT[/MS]": "1/0.2", "10". Without MS the round trip is 0.2 ms, from 10 Gbit/s on 0.1. kUsage.
Result<Network> ParseNetwork(std::string_view text);

struct HostsToPrice {
  std::vector<uint64_t> bytes = {};  // of each host
  Network network = {};
  MachineRates rates = {};  // rates of this machine; hosts are assumed to be as fast
  double disk = 0.0;        // bytes per second in the short bursts of reads of a layer
  double resident = 0.0;    // seconds of a token with all experts in memory
  double experts = 0.0;     // seconds of `resident` that the experts take
  uint32_t count_from = 0;  // tokens of the trace before this one are not counted
};

struct RemotePrice {
  double share = 0.0;    // share of the experts that hosts have
  RemoteGain gain = {};  // seconds of a token
};

// Prices hosts by two replays of `routing` on a machine with settled devices: with them and on the
// CPU alone. Errors: Replay(). REQUIRES: needs.row_bytes, needs.expert_bytes.
Result<RemotePrice> PriceHosts(const Trace& routing, const ModelNeeds& needs, const Fit& fit,
                               const HostsToPrice& hosts);

}  // namespace moestro
