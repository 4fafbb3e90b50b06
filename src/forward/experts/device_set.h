// SPDX-License-Identifier: MIT
// The devices of an engine in a layer: each computes its own part of the plan beside the others, as
// device_experts.h says. Rows may stay on the first one alone.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/layer_plan.h"
#include "forward/experts/device_experts.h"
#include "forward/experts/expert_exec.h"
#include "residency/residency.h"

namespace moestro {

class DeviceSet {
 public:
  // The devices in the order of plans; all must outlive this.
  explicit DeviceSet(std::vector<DeviceExperts*> devices) : devices_(std::move(devices)) {}

  uint32_t size() const { return static_cast<uint32_t>(devices_.size()); }
  DeviceExperts& operator[](uint32_t device) { return *devices_[device]; }

  // Launches the experts that are in device slots. The plan, the rows and the results must live
  // until the last Finish() or Abandon(). kDevice, here and below: failed() says which device
  // failed; call Abandon() then.
  Status Begin(const LayerPlan& plan, const ExpertRows& rows, float* results);
  // See DeviceExperts.
  bool Bring(size_t index, const Lease& lease);
  Status Advance();
  bool all_launched() const;
  // Whether the device computes an expert of the layer.
  bool works(uint32_t device) const { return works_[device]; }
  // Waits for the device's results, if it works. REQUIRES: all_launched().
  Status Finish(uint32_t device);
  void Abandon();
  // The device whose error ended the layer; nullopt: no device.
  std::optional<uint32_t> failed() const { return failed_; }

 private:
  Status Note(uint32_t device, Status done);

  std::vector<DeviceExperts*> devices_;
  // State of the layer under way.
  const LayerPlan* plan_ = nullptr;
  std::vector<bool> works_;
  std::optional<uint32_t> failed_;
};

}  // namespace moestro
