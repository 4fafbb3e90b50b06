// SPDX-License-Identifier: MIT
#include "native/plan/remote_gain.h"

#include <random>

namespace moestro {
namespace {

constexpr int kLayers = 128;

double Uniform(std::mt19937& random) { return static_cast<double>(random()) * 0x1.0p-32; }

}  // namespace

RemoteGain GainOfRemotes(const RemoteCase& of, const LatencyModel& model, PlaceMode mode) {
  std::mt19937 random(1);
  // No copies: experts stay where they are.
  const std::vector<std::vector<uint32_t>> no_room(of.there.size(), std::vector<uint32_t>(1));
  RemoteGain gain;
  for (int layer = 0; layer < kLayers; ++layer) {
    std::vector<LaneJob> jobs(of.n_used);
    for (LaneJob& job : jobs) {
      job.bytes = of.expert_bytes;
      job.in_memory = Uniform(random) < of.in_memory;
      job.slot_prices.assign(of.there.size(), 0.0);
    }
    gain.without += PlanLanes(jobs, model, PlaceMode::kCpu, no_room).cost();
    for (LaneJob& job : jobs) {
      double left = Uniform(random);
      for (uint32_t d = 0; d < of.there.size() && !job.on_device; ++d) {
        if (left < of.there[d]) job.on_device = d;
        left -= of.there[d];
      }
    }
    gain.with += PlanLanes(jobs, model, mode, no_room).cost();
  }
  gain.without /= kLayers;
  gain.with /= kLayers;
  return gain;
}

}  // namespace moestro
