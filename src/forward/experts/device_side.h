// SPDX-License-Identifier: MIT
// The devices beside the CPU: the experts that they compute in a layer, the experts that move to
// them, and the failure of a device. decide/devices/device_tier.h decides, device_set.h carries
// out.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
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
    // [device] If true, the step ends when the device is lost; else the CPU and the other devices
    // go on.
    std::vector<bool> ends_if_lost = {};
    // Called with a sentence when a device is given up; may be empty.
    std::function<void(const std::string&)> lost = {};
    // Experts that have come to devices whose experts stay the same, since the last call; may be
    // empty.
    struct Settled {
      DeviceTier::Promotion expert;
      bool is_there = false;
    };
    std::function<std::vector<Settled>()> take_settled = {};
  };
  // All must outlive this.
  DeviceSide(DeviceTier& tier, DeviceSet& devices, Residency& residency, Options options);
  // Waits until no copy is under way.
  ~DeviceSide();

  // Call before a step: experts promoted in the last step are now on their devices.
  void BeginStep();
  // Chooses the experts that the devices compute.
  void Assign(LayerPlan& plan);
  // The layer has run; notes its times in the plan.
  void Done(LayerPlan& plan, const ExpertExec::LaneSeconds& took);
  // The layer has failed: the CPU computes the whole plan now. No device is at fault for an error
  // other than kDevice. kDevice: a device is lost and the step must not go on without it.
  Status Failed(LayerPlan& plan, const Error& why);
  // The CPU has computed the layer that failed: results [pair][width]. kDevice: a device gave no
  // numbers for rows from which the CPU makes numbers, and is left out.
  Status Judge(std::span<const float> results, size_t width);
  // Asks every device for known results. kDevice: some are wrong; the device is left out.
  Status CheckResults();
  // Why a device was left out for wrong results since the last call. What was computed with it
  // since it was last right may be wrong, and so may what follows from that.
  bool has_wrong() const { return wrong_.has_value(); }
  std::optional<Error> TakeWrong() { return std::exchange(wrong_, std::nullopt); }

  // For each lane: the time now divided by the time measured at the start; 1: not known yet, or the
  // model is fixed.
  LaneRatios ratios() const { return tracker_.ratios(); }

 private:
  struct UnderWay {
    DeviceTier::Promotion promotion;
    DeviceExperts::Ticket ticket;
    std::optional<Lease> lease;  // until the bytes are on the device
  };
  std::unexpected<Error> LeaveOut(uint32_t device, const std::string& why);
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
  // The ratios of the model in use to the measured model.
  LaneRatios in_use_;
  // For the layer under way: the predicted times, and the counts of copies and reads before it.
  LaneTimes predicted_;
  std::vector<Copier::Made> copied_before_;  // [device]
  ExpertCounts read_before_;
  std::vector<UnderWay> promotions_;
  std::vector<uint32_t> failures_;  // [device], failed layers in a row
  // Of the layer that failed: results that were no numbers.
  struct Suspect {
    uint32_t device = 0;
    std::vector<uint32_t> pairs;
  };
  std::optional<Suspect> suspect_;
  std::optional<Error> wrong_;
};

}  // namespace moestro
