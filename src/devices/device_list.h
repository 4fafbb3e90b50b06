// SPDX-License-Identifier: MIT
// The devices beside the CPU, in a layer and between layers: the experts that they compute beside
// each other and beside the CPU, the experts that move to them, and the failure of a device.
// decide/devices/device_tier.h decides; a Device carries out its own part. Slots are filled before
// the first token with the most popular experts, by a profile or else by the first prompt
// (Twiddler).
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
#include "base/work_limit.h"
#include "core/layer_plan.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/latency_model.h"
#include "devices/copier.h"
#include "devices/device.h"
#include "devices/whole_layers.h"
#include "engine/engine.h"
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
  };
  // devices: in the order of plans, all with slots. The devices and the residency must outlive
  // this.
  DeviceList(std::vector<Device*> devices, std::unique_ptr<DeviceTier> tier, Residency& residency,
             Options options);
  // Waits until no copy is under way.
  ~DeviceList();

  uint32_t size() const { return static_cast<uint32_t>(devices_.size()); }
  Device& operator[](uint32_t device) { return *devices_[device]; }
  DeviceTier& tier() { return *tier_; }
  const DeviceTier& tier() const { return *tier_; }
  // Costs are from a file, so that decisions by cost do not depend on timing.
  bool has_fixed_costs() const { return options_.is_fixed; }

  // Copies the most popular experts to the devices. kIo.
  Status Fill(std::span<const ExpertKey> first, const Progress& report);
  // Call before a step that decodes. Copies the experts of DeviceTier::FillByUses(). Ends early
  // at a stop, or after a long time if plans may depend on timing. A failed read is no error: a
  // layer that needs the expert reads it again.
  void FillByUses(StopSignal& stop, bool is_repeatable, const Progress& report);
  // Begins to bring devices the experts that stay there. shares: [device], grouped by layer. Where
  // plans must not depend on timing, waits until the experts have landed. kIo.
  Status BringShares(std::vector<std::vector<ExpertKey>> shares);
  // Waits until nothing is on its way to such a device. The next step then uses the experts.
  void AwaitShares() const;

  // Call before a step: experts promoted in the last step are now on their devices.
  // kDevice.
  Status BeginStep();
  // Layers that the first device computes whole; null: none.
  const WholeLayers* whole() const { return whole_.get(); }
  void SetWhole(std::unique_ptr<WholeLayers> whole) { whole_ = std::move(whole); }
  // Chooses the experts that the devices compute.
  void Assign(LayerPlan& plan);

  // A layer on all devices, by the calls of Device. Begin() launches the experts that are in
  // device slots; the plan, the rows and the results must live until the last Finish() or
  // Abandon(). kDevice: a device failed; call Abandon(), then Failed(). The first device may take
  // the rows where they lie and keep its results (Device::BeginThere()).
  struct Rows {
    const float* ffn_in = nullptr;       // [rows][n_embd], for devices that have no rows
    const StepBuffers* there = nullptr;  // not null: the rows are on the first device
  };
  Status Begin(const LayerPlan& plan, const Rows& rows, float* results);
  bool Bring(size_t index, const Lease& lease);
  Status Advance();
  bool all_launched() const;
  // Whether the device computes an expert of the layer.
  bool works(uint32_t device) const { return works_[device]; }
  // Waits for the device's results, if it works and does not keep them. REQUIRES: all_launched().
  Status Finish(uint32_t device);
  // Whether Finish() has waited for the device: results that stay there are waited for in a step of
  // kStepsToWatch, so that the device's costs are followed.
  bool has_waited(uint32_t device) const {
    return works_[device] && (!keeps_results_ || device != 0 || watches_);
  }
  static constexpr uint64_t kStepsToWatch = 32;
  void Abandon();

  // Call after the layer has run. Notes the layer's times in the plan.
  void Done(LayerPlan& plan, const LaneSeconds& took);
  // Call in place of the calls above after the first device has computed the layer whole.
  void DoneWhole(LayerPlan& plan, double seconds);
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

  // Calls of each device's driver so far.
  std::vector<DeviceTraffic> traffic() const;
  // For each lane: the time now divided by the time measured at the start; 1: not known yet, or the
  // model is fixed.
  LaneRatios ratios() const { return tracker_.ratios(); }

 private:
  struct UnderWay {
    DeviceTier::Promotion promotion;
    Device::Ticket ticket;
    std::optional<Lease> lease;  // held until the bytes are on the device
  };
  Status Note(uint32_t device, Status done);
  std::unexpected<Error> LeaveOut(uint32_t device, const std::string& why);
  void MoveBack(const MovedExpert& moved, std::span<const ExpertKey> keeps);
  void Promote(const LayerPlan& plan);
  std::optional<Lease> LeaseFor(ExpertKey key);
  // Called before each expert; false: the remaining experts are not copied.
  using GoesOn = std::function<bool()>;
  Status Copy(std::span<const DeviceTier::Promotion> wanted, const GoesOn& goes_on,
              const Progress& report);
  void LandPromotions();
  void TellDivision() const;
  void LookAfter(uint32_t device);
  void Observe(const LaneSeconds& took, uint32_t n_rows);
  void ObserveDevices(const LaneSeconds& took);
  void ObserveCopies(bool beside_host);
  void ObserveReads();

  const std::unique_ptr<DeviceTier> tier_;
  const std::vector<Device*> devices_;
  Residency& residency_;
  Options options_;
  std::vector<std::vector<ExpertKey>> shares_;  // [device]: experts that stay there
  // State of the layer under way.
  const LayerPlan* plan_ = nullptr;
  std::vector<bool> works_;     // [device]
  bool keeps_results_ = false;  // the first device
  uint64_t steps_ = 0;
  bool watches_ = false;            // the step's times of results that stay on the device
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
  std::unique_ptr<WholeLayers> whole_;  // null: the device computes no layer whole
  // The results of the failed layer that were NaN or infinite.
  struct Suspect {
    uint32_t device = 0;
    std::vector<uint32_t> pairs;
  };
  std::optional<Suspect> suspect_;
  std::optional<Error> wrong_;
};

}  // namespace moestro
