// SPDX-License-Identifier: MIT
#include "native/plan/remote_gain.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace moestro {
namespace {

constexpr int kLayers = 128;

double Uniform(std::mt19937& random) { return static_cast<double>(random()) * 0x1.0p-32; }

}  // namespace

RemoteGain GainOfRemotes(const RemoteCase& of, const LatencyModel& model, PlaceMode mode) {
  std::mt19937 random(1);
  // No device has room for copies: experts stay where they are.
  const std::vector<std::vector<uint32_t>> no_room(of.there.size(), std::vector<uint32_t>(1));
  // Memory gets requests for the experts that hosts lack, and in time holds those experts.
  const double here = 1.0 - std::min(1.0, std::reduce(of.there.begin(), of.there.end()));
  const double beside_hosts = here > of.in_memory ? of.in_memory / here : 1.0;
  RemoteGain gain;
  for (int layer = 0; layer < kLayers; ++layer) {
    std::vector<LaneJob> jobs(of.n_used);
    std::vector<double> in_memory;  // [job], drawn
    for (LaneJob& job : jobs) {
      job.bytes = of.expert_bytes;
      in_memory.push_back(Uniform(random));
      job.in_memory = in_memory.back() < of.in_memory;
      job.slot_prices.assign(of.there.size(), 0.0);
    }
    gain.without += PlanLanes(jobs, model, PlaceMode::kCpu, no_room).cost();
    for (size_t j = 0; j < jobs.size(); ++j) {
      LaneJob& job = jobs[j];
      double left = Uniform(random);
      for (uint32_t d = 0; d < of.there.size() && !job.on_device; ++d) {
        if (left < of.there[d]) job.on_device = d;
        left -= of.there[d];
      }
      if (!job.on_device) job.in_memory = in_memory[j] < beside_hosts;
    }
    gain.with += PlanLanes(jobs, model, mode, no_room).cost();
  }
  gain.without /= kLayers;
  gain.with /= kLayers;
  return gain;
}

}  // namespace moestro
