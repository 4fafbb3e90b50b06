// SPDX-License-Identifier: MIT
// Joins the devices beside the CPU in one tier of slots, beside memory and its policy. Fills the
// slots before the first token with the most popular experts, by a profile or else by the first
// prompt (Twiddler).
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
#include "forward/experts/device_list.h"
#include "native/device_part.h"
#include "native/opened_model.h"
#include "native/remote_side.h"
#include "native/slot_part.h"

namespace moestro {

class JoinedDevices {
 public:
  // All must outlive this. Takes the DeviceExperts of the devices. The devices' plans then have the
  // costs of the disk. kIo; kUsage. REQUIRES: `devices` is not empty.
  static Result<std::unique_ptr<JoinedDevices>> Join(const OpenedModel& opened, DevicePart& devices,
                                                     SlotPart& slots, bool has_dense);
  JoinedDevices(const JoinedDevices&) = delete;
  JoinedDevices& operator=(const JoinedDevices&) = delete;

  DeviceTier& tier() { return *tier_; }
  const DeviceTier& tier() const { return *tier_; }
  DeviceList& list() { return *list_; }
  const DeviceList& list() const { return *list_; }
  // Costs are from a file, so that decisions by cost do not depend on timing.
  bool has_fixed_costs() const { return !opened_.options.device.latency_model.empty(); }

  // Copies the most popular experts to the devices. kIo.
  Status Fill(std::span<const ExpertKey> first, const Progress& report);
  // Begins to bring remote hosts their experts: the most popular ones, if known, except those that
  // memory keeps. Where plans must not depend on timing, waits until they have landed. kIo.
  // `devices` must outlive this.
  Status BringToRemotes(DevicePart& devices, const SlotPart& slots);
  // Waits until nothing is on the way to a remote host. The next step then uses the hosts' experts.
  void AwaitRemotes() const;
  // Call before a step that decodes. Copies the experts of DeviceTier::FillByPrompt(). Ends early
  // at a stop, or after a long time if plans may depend on timing. A failed read is no error: a
  // layer that needs the expert reads it again.
  void FillByPrompt(StopSignal& stop, bool is_repeatable, const Progress& report);

 private:
  JoinedDevices(const OpenedModel& opened, SlotPart& slots)
      : opened_(opened), residency_(slots.residency()) {}
  // Called before each expert; false: the remaining experts are not copied.
  using GoesOn = std::function<bool()>;
  bool RemotesPay(const DevicePart& devices, const SlotPart& slots);
  Status Copy(std::span<const DeviceTier::Promotion> wanted, const GoesOn& goes_on,
              const Progress& report);

  const OpenedModel& opened_;
  Residency& residency_;
  std::unique_ptr<DeviceTier> tier_;
  std::unique_ptr<RemoteSide> remotes_;  // null: no remote hosts
  std::unique_ptr<DeviceList> list_;
};

}  // namespace moestro
