// SPDX-License-Identifier: MIT
// The devices beside the CPU, in a layer and between layers: the experts that they compute beside
// each other and beside the CPU, the experts that move to them, and the failure of a device.
// decide/devices/device_tier.h decides; a device (device_experts.h) carries out its own part.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
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
#include "forward/experts/expert_exec.h"
#include "residency/residency.h"

namespace moestro {

class DeviceList {
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
  // devices: in the order of plans. The references must outlive this.
  DeviceList(DeviceTier& tier, std::vector<std::unique_ptr<DeviceExperts>> devices,
             Residency& residency, Options options);
  // Waits until no copy is under way.
  ~DeviceList();

  uint32_t size() const { return static_cast<uint32_t>(devices_.size()); }
  DeviceExperts& operator[](uint32_t device) { return *devices_[device]; }

  // Call before a step: experts promoted in the last step are now on their devices.
  void BeginStep();
  // Chooses the experts that the devices compute.
  void Assign(LayerPlan& plan);

  // A layer on all devices, by the calls of DeviceExperts. Begin() launches the experts that are in
  // device slots; the plan, the rows and the results must live until the last Finish() or
  // Abandon(). kDevice: a device failed; call Abandon(), then Failed(). Rows may stay on the first
  // device alone.
  Status Begin(const LayerPlan& plan, const ExpertRows& rows, float* results);
  bool Bring(size_t index, const Lease& lease);
  Status Advance();
  bool all_launched() const;
  // Whether the device computes an expert of the layer.
  bool works(uint32_t device) const { return works_[device]; }
  // Waits for the device's results, if it works. REQUIRES: all_launched().
  Status Finish(uint32_t device);
  void Abandon();

  // Call after the layer has run. Notes the layer's times in the plan.
  void Done(LayerPlan& plan, const ExpertExec::LaneSeconds& took);
  // Call after the layer has failed. The plan is then for the CPU alone. No device is at fault for
  // an error other than kDevice. kDevice: a device is lost and the step must not go on without the
  // device.
  Status Failed(LayerPlan& plan, const Error& why);
  // Call after the CPU has computed the layer that failed: results [pair][width]. kDevice: a device
  // gave NaN or infinity for rows from which the CPU computes numbers, and is left out.
  Status Judge(std::span<const float> results, size_t width);
  // Compares known results of every device. kDevice: some are wrong; the device is left out.
  Status CheckResults();
  // The reason why a device was left out for wrong results since the last call. Results with the
  // device's part, since the device was last found right, may be wrong, and so may all that follows
  // from them.
  bool has_wrong() const { return wrong_.has_value(); }
  std::optional<Error> TakeWrong() { return std::exchange(wrong_, std::nullopt); }

  // For each lane: the time now divided by the time measured at the start; 1: not known yet, or the
  // model is fixed.
  LaneRatios ratios() const { return tracker_.ratios(); }

 private:
  struct UnderWay {
    DeviceTier::Promotion promotion;
    DeviceExperts::Ticket ticket;
    std::optional<Lease> lease;  // held until the bytes are on the device
  };
  Status Note(uint32_t device, Status done);
  std::unexpected<Error> LeaveOut(uint32_t device, const std::string& why);
  void MoveBack(const MovedExpert& moved, std::span<const ExpertKey> keeps);
  void Promote(const LayerPlan& plan);
  std::optional<Lease> LeaseFor(ExpertKey key);
  void Observe(const ExpertExec::LaneSeconds& took);
  void ObserveDevices(const ExpertExec::LaneSeconds& took);
  void ObserveCopies(bool beside_host);
  void ObserveReads();

  DeviceTier& tier_;
  const std::vector<std::unique_ptr<DeviceExperts>> devices_;
  Residency& residency_;
  Options options_;
  // State of the layer under way.
  const LayerPlan* plan_ = nullptr;
  std::vector<bool> works_;         // [device]
  std::optional<uint32_t> failed_;  // the device whose error ended the layer
  LatencyModel measured_;           // costs before any refit
  LatencyTracker tracker_;
  // The ratios of the model in use to the measured model.
  LaneRatios in_use_;
  // For the layer under way: the predicted times, and the counts of copies and reads before it.
  LaneTimes predicted_;
  std::vector<Copier::Made> copied_before_;  // [device]
  ExpertCounts read_before_;
  std::vector<UnderWay> promotions_;
  std::vector<uint32_t> failures_;  // [device], failed layers in a row
  // The results of the failed layer that were NaN or infinite.
  struct Suspect {
    uint32_t device = 0;
    std::vector<uint32_t> pairs;
  };
  std::optional<Suspect> suspect_;
  std::optional<Error> wrong_;
};

}  // namespace moestro
