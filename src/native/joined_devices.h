// SPDX-License-Identifier: MIT
// The devices beside the CPU, joined in one tier of slots that plans are made for, beside memory
// and its policy; and the experts that they get before the first token: the most popular ones, as a
// profile says or else as the first prompt asked for them (Twiddler).
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/stop_signal.h"
#include "decide/devices/device_tier.h"
#include "engine/engine.h"
#include "forward/experts/device_experts.h"
#include "forward/experts/device_set.h"
#include "forward/experts/device_side.h"
#include "native/device_part.h"
#include "native/opened_model.h"
#include "native/slot_part.h"

namespace moestro {

class JoinedDevices {
 public:
  // All must outlive this. Takes over what computes experts on the devices, whose plans have the
  // costs of the disk then. kIo; kUsage. REQUIRES: there is a device.
  static Result<std::unique_ptr<JoinedDevices>> Join(const OpenedModel& opened, DevicePart& devices,
                                                     SlotPart& slots, bool has_dense);
  JoinedDevices(const JoinedDevices&) = delete;
  JoinedDevices& operator=(const JoinedDevices&) = delete;

  DeviceTier& tier() { return *tier_; }
  const DeviceTier& tier() const { return *tier_; }
  DeviceSet& set() { return *set_; }
  DeviceSide& side() { return *side_; }
  const DeviceSide& side() const { return *side_; }
  // Costs are from a file, so that what is decided by them does not depend on timing.
  bool has_fixed_costs() const { return !opened_.options.device.latency_model.empty(); }

  // Copies the most popular experts there. kIo.
  Status Fill(std::span<const ExpertKey> first, const Progress& report);
  // Before a step that decodes: what DeviceTier::FillByPrompt() says, until the stop, or until it
  // takes long and plans may depend on timing. A read that fails is no error: a layer that needs
  // the expert reads it again.
  void FillByPrompt(StopSignal& stop, bool is_repeatable, const Progress& report);

 private:
  JoinedDevices(const OpenedModel& opened, SlotPart& slots)
      : opened_(opened), residency_(slots.residency()) {}
  // False: what is left is not copied any more; asked before each expert.
  using GoesOn = std::function<bool()>;
  Status Copy(std::span<const DeviceTier::Promotion> wanted, const GoesOn& goes_on,
              const Progress& report);

  const OpenedModel& opened_;
  Residency& residency_;
  std::vector<std::unique_ptr<DeviceExperts>> experts_;  // [device]
  std::optional<DeviceSet> set_;
  std::unique_ptr<DeviceTier> tier_;
  std::unique_ptr<DeviceSide> side_;
};

}  // namespace moestro
