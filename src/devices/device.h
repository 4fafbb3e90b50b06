// SPDX-License-Identifier: MIT
// A device beside the CPU: a GPU of this machine, or the memory and processor of a remote host. A
// Device owns its slots for experts, its launches, its copies and the record of its failures; its
// transport (transport.h) carries rows, results and weights to the processor and back. In a layer:
//
//   Begin(plan)    sends x of the rows, launches the experts that this device has
//   Bring(lease)   copies an expert to the device beside the launches
//   Advance()      launches copied experts, group by group, while the next group is copied
//   Finish()       copies the results back: [pair][n_embd]
//
// If the dense part is on the device, rows stay there: BeginThere() takes x from the StepBuffers on
// the device, and Finish() launches the sum of the device's results, without waiting.
//
// Thread rule: the engine thread. Copies run on a thread of their own; a slot is rewritten only
// between Finish() and the next Begin(), when no launch reads it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "compute/devices.h"
#include "core/expert_catalog.h"
#include "core/layer_plan.h"
#include "devices/copier.h"
#include "devices/device_link.h"
#include "devices/transport.h"
#include "engine/engine_options.h"
#include "residency/residency.h"

namespace moestro {

class Device {
 public:
  // An open device of this machine, without slots. computes: [form]. vram: bytes that may be used
  // on the device. The catalog must outlive this.
  Device(ComputeDevice here, const ExpertCatalog& catalog, uint64_t vram,
         std::vector<bool> computes);
  // A device that the transport reaches. slots: [form], of the transport.
  Device(std::unique_ptr<Transport> transport, const ExpertCatalog& catalog,
         std::vector<uint64_t> slots = {}, DeviceFaults faults = {});
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  // The device of this machine; null: a remote host.
  const ComputeDevice* here() const { return here_ ? &*here_ : nullptr; }
  // Null: a remote host.
  DeviceLink* link() const { return link_.get(); }
  const DeviceInfo& info() const { return plan_.info; }
  // The device's bytes, slots and costs, as the planner and reports read them.
  DeviceBudget& plan() { return plan_; }
  const DeviceBudget& plan() const { return plan_; }
  uint64_t vram() const { return vram_; }
  bool computes(uint32_t form) const { return computes_[form]; }

  // Slots for experts by form, empty before TakeSlots(), and the transport that fills and
  // multiplies them.
  std::span<const uint64_t> slots() const { return slots_; }
  void TakeSlots(std::unique_ptr<Transport> transport, std::vector<uint64_t> slots,
                 DeviceFaults faults);
  // The CPU computes the form's experts: the device gives other results.
  void LeaveOut(uint32_t form) { plan_.slots -= std::exchange(slots_[form], 0); }
  // Waits for copies and launches, and gives the slots' memory back.
  void GiveUpSlots();
  Transport& transport() { return *transport_; }
  const Transport& transport() const { return *transport_; }

  // `device`: this device's number in the plan; experts of other devices are ignored.
  struct Assignment {
    const LayerPlan& plan;
    uint32_t device = 0;
  };
  // ffn_in: [rows][n_embd]; results: [pair][n_embd], written for this device's pairs. Both and the
  // plan must live until Finish() or Abandon(). After kDevice, call Abandon().
  Status Begin(const Assignment& assignment, const float* ffn_in, float* results);
  // Computes `hidden` of `rows` on the device from ffn_in, shared and residual, without the pairs
  // of other processors. REQUIRES: the device computes some pair; no launch of experts is under
  // way. After kDevice, call Abandon().
  Status BeginThere(const Assignment& assignment, const StepBuffers& rows);
  // Copies an expert of the plan to this device. True once its bytes are on the device and the
  // lease may be released.
  bool Bring(size_t index, const Lease& lease);
  // Launches each group of copied experts whose copies have all landed, in the plan's order. After
  // kDevice, call Abandon().
  Status Advance();
  bool all_launched() const { return next_group_ == groups_.size(); }
  // Ends the layer. Waits for the results, except after BeginThere(). REQUIRES: all_launched().
  // After kDevice, call Abandon().
  Status Finish();
  // Waits until the device has its results, after BeginThere() and Finish(). kDevice.
  Status Await();
  // Waits until no copy and no launch of the layer is under way; the layer's results are lost.
  void Abandon();

  // Layers that have failed one after another.
  uint32_t failures() const { return failures_; }
  void CountFailure() { ++failures_; }
  void ForgetFailures() { failures_ = 0; }

  // Fills a slot beside the launches. The lease must live until Wait() has returned.
  struct Ticket {
    uint64_t first = 0;
    uint64_t last = 0;
  };
  using Matrices = std::array<const std::byte*, kMatrices>;
  Ticket Fill(ExpertKey key, SlotId slot, const Matrices& matrices);
  // Copies a slot to memory and waits. REQUIRES: the slot is not written meanwhile. kDevice.
  Status Fetch(ExpertKey key, SlotId slot, const std::array<std::byte*, kMatrices>& to) const;
  bool Wait(const Ticket& ticket) { return copier_->Wait(ticket.first, ticket.last); }
  // How Fill() copies; false: the device has no such way. REQUIRES: no copy is under way.
  bool SetCopyWay(Transport::CopyWay way);
  Transport::CopyWay copy_way() const { return copy_way_; }
  // Copies made, one for each matrix.
  Copier::Made copies_made() const { return copier_->made(); }
  uint64_t copies_per_expert() const { return HasGate(transport_->shape().activation) ? 3 : 2; }

 private:
  // Experts [first, last) of the plan. The copied experts of this device among them are launched
  // together.
  struct Group {
    size_t first = 0;
    size_t last = 0;
  };
  void BeginPlan(const Assignment& assignment);
  bool is_mine(const PlannedExpert& expert) const {
    return expert.place != Place::kHost && expert.device == index_;
  }
  Status LaunchHeld();
  Status LaunchGroup(const Group& group);

  std::optional<ComputeDevice> here_;
  std::unique_ptr<DeviceLink> link_;
  const ExpertCatalog& catalog_;
  DeviceBudget plan_;
  uint64_t vram_ = 0;
  std::vector<bool> computes_;   // [form]
  std::vector<uint64_t> slots_;  // [form]
  std::unique_ptr<Transport> transport_;
  DeviceFaults faults_;
  std::unique_ptr<Copier> copier_;  // null: the device has no slots
  Transport::CopyWay copy_way_ = Transport::CopyWay::kBlocking;
  uint32_t failures_ = 0;

  // State of the layer under way.
  const LayerPlan* layer_ = nullptr;
  uint32_t index_ = 0;  // this device's number in the plan
  std::vector<Group> groups_;
  size_t next_group_ = 0;        // the next group to launch
  bool has_failed_ = false;      // a copy has failed
  std::vector<Ticket> tickets_;  // [expert of the plan]: the expert's copies; 0: not requested
  std::vector<bool> is_there_;   // [expert of the plan]: its copies have landed
};

// The matrices of a lease. REQUIRES: lease.is_complete().
Device::Matrices MatricesOf(const Lease& lease);

}  // namespace moestro
