// SPDX-License-Identifier: MIT
// The slots of an engine: their number within the budget, the queue that fills them, the policy
// that chooses which expert leaves, and their contents.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "decide/slots/resident_model.h"
#include "device/team.h"
#include "engine/engine.h"
#include "engine/plan/memory_plan.h"
#include "native/device_setup.h"
#include "native/opened_model.h"
#include "residency/engine_slots.h"
#include "residency/residency.h"
#include "store/read_queue.h"
#include "store/reads_beside.h"

namespace moestro {

class SlotPart {
 public:
  // Turns the rest of the budget into slots. Measures how many reads the disk gets at a time if no
  // number was requested. `opened` and the memory that `devices` copy from must outlive this.
  // kInvalidRequest: the budget is too small (names the smallest that works); kNoMemory; kUsage.
  static Result<std::unique_ptr<SlotPart>> Create(const OpenedModel& opened, DeviceSetup& devices,
                                                  const FixedBytes& fixed);
  // Bytes of the budget beyond the smallest that works; 0: none.
  static uint64_t RoomIn(const OpenedModel& opened, const FixedBytes& fixed);
  SlotPart(const SlotPart&) = delete;
  SlotPart& operator=(const SlotPart&) = delete;

  const MemoryPlan& memory() const { return planned_.plan; }          // without devices
  std::span<const uint64_t> slots() const { return planned_.slots; }  // by pool
  const PolicyChoice& policy() const { return policy_; }              // in use
  bool holds_all() const { return memory().n_slots >= memory().n_experts; }
  ReadQueue& queue() { return *queue_; }
  uint32_t io_depth() const { return queue_->options().max_in_flight; }
  Residency& residency() { return *residency_; }
  const Residency& residency() const { return *residency_; }
  ResidentModel MakeResidentModel() const {
    return ResidentModelOf(opened_.catalog, slots(), policy_, opened_.model.id.shape);
  }
  std::vector<SlotContents> contents() const {
    return ContentsOf(*residency_, opened_.catalog, slots());
  }

  // Begins to read the experts that decode used in earlier runs (learned/kept_uses.h). Returns
  // their number.
  uint64_t Recall();
  // Keeps the experts that decode has used, for the next start.
  void KeepUses() const;
  // Makes all slots resident. Meanwhile recalled experts are read.
  Status Populate(Team& team, const Progress& report) const;
  // Measures the disk's bytes per second by reading `total` bytes of experts as decode does.
  // REQUIRES: no leases. kIo.
  Result<double> ProbeReads(uint64_t total) {
    return ProbeExpertReads(*residency_, opened_.catalog, *opened_.reader, queue_->options(),
                            total);
  }
  // Begins to read experts as decode does, on a thread of its own, into memory of its own (for
  // all reads at a time). REQUIRES: no leases. kIo, kUnsupported.
  Result<std::unique_ptr<ReadsBeside>> ReadBeside();

 private:
  SlotPart(const OpenedModel& opened, PlannedMemory planned)
      : opened_(opened), planned_(std::move(planned)) {}
  Status Allocate(DeviceSetup& devices);
  std::vector<uint8_t> UsesNow() const;

  const OpenedModel& opened_;
  PlannedMemory planned_;
  PolicyChoice policy_;
  std::unique_ptr<ReadQueue> queue_;
  std::unique_ptr<Residency> residency_;
  std::vector<uint8_t> uses_before_;  // [layer][expert], as earlier runs kept them; may be empty
};

}  // namespace moestro
