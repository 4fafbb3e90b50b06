// SPDX-License-Identifier: MIT
// The devices beside the CPU: what they compute of every layer, what moves to them, what happens
// when one fails. decide/devices/device_tier.h decides, device_set.h does.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/layer_plan.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/latency_model.h"
#include "device/copier.h"
#include "forward/experts/device_experts.h"
#include "forward/experts/device_set.h"
#include "forward/experts/expert_exec.h"
#include "residency/residency.h"

namespace moestro {

class DeviceSide {
 public:
  struct Options {
    bool is_fixed = false;  // the latency model stays as it is
    // [device] If it is lost the step ends; else the CPU and the other devices go on.
    std::vector<bool> ends_if_lost = {};
    // Told, in a sentence, when a device is given up; may be empty.
    std::function<void(const std::string&)> lost = {};
  };
  // All must outlive this.
  DeviceSide(DeviceTier& tier, DeviceSet& devices, Residency& residency, Options options);
  // No copy is under way any more.
  ~DeviceSide();

  // Before a step: what was promoted in the last one is there now.
  void BeginStep();
  // Which experts the devices compute.
  void Assign(LayerPlan& plan);
  // The layer has run; notes in the plan what it took.
  void Done(LayerPlan& plan, const ExpertExec::LaneSeconds& took);
  // It has not: the plan is for the CPU now. An error of another kind than kDevice is no device's
  // fault here. kDevice: a device is lost and the step must not go on without it.
  Status Failed(LayerPlan& plan, const Error& why);

  // How many times as long as was measured at the start the lanes take; 1: as yet unknown, or the
  // model is fixed.
  LaneRatios ratios() const { return tracker_.ratios(); }

 private:
  struct UnderWay {
    DeviceTier::Promotion promotion;
    DeviceExperts::Ticket ticket;
    std::optional<Lease> lease;  // until the bytes are there
  };
  void MoveBack(const MovedExpert& moved, std::span<const ExpertKey> keeps);
  void Promote(const LayerPlan& plan);
  std::optional<Lease> LeaseFor(ExpertKey key);
  void Observe(const ExpertExec::LaneSeconds& took);
  void ObserveDevices(const ExpertExec::LaneSeconds& took);
  void ObserveCopies(bool beside_host);
  void ObserveReads();

  DeviceTier& tier_;
  DeviceSet& devices_;
  Residency& residency_;
  Options options_;
  LatencyModel measured_;  // before any refit
  LatencyTracker tracker_;
  // Of the model in use to the measured one.
  LaneRatios in_use_;
  // Of the layer under way: what was predicted, what had been copied and read before it.
  LaneTimes predicted_;
  std::vector<Copier::Made> copied_before_;  // [device]
  ExpertCounts read_before_;
  std::vector<UnderWay> promotions_;
  std::vector<uint32_t> failures_;  // [device], of its layers one after another
};

}  // namespace moestro
