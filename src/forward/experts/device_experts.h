// SPDX-License-Identifier: MIT
// The experts of a layer that one device computes, beside those of the CPU and of other devices. In
// a layer:
//
//   Begin(plan)    sends x of the rows, launches the experts that this device has
//   Bring(lease)   copies an expert to the device beside the launches
//   Advance()      launches copied experts, group by group, while the next group is copied
//   Finish()       copies the results back: [pair][n_embd]
//
// If the dense part and all experts of a layer are on the device, rows stay there: BeginThere()
// takes x from the StepBuffers on the device, and Finish() launches the sum of all results, without
// waiting. launcher.h launches.
//
// Thread rule: the engine thread. Copies run on a thread of their own; a slot is rewritten only
// between Finish() and the next Begin(), when no launch reads it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/device_info.h"
#include "core/expert_catalog.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "device/copier.h"
#include "engine/device_options.h"
#include "forward/dense/step_buffers.h"
#include "forward/experts/expert_exec.h"
#include "forward/experts/launcher.h"
#include "residency/residency.h"  // Lease

namespace moestro {

class DeviceExperts {
 public:
  // The catalog must outlive this.
  DeviceExperts(std::unique_ptr<Launcher> launcher, const ExpertCatalog& catalog,
                DeviceFaults faults = {});
  ~DeviceExperts();

  // `device`: this device's number in the plan; experts of other devices are ignored.
  struct Part {
    const LayerPlan& plan;
    uint32_t device = 0;
  };
  // BeginThere() if the rows are on the device, else Begin().
  Status Begin(const Part& part, const ExpertRows& rows, float* results) {
    return rows.there != nullptr ? BeginThere(part, *rows.there)
                                 : Begin(part, rows.ffn_in, results);
  }
  // ffn_in: [rows][n_embd]; results: [pair][n_embd], written for this device's pairs. Both and the
  // plan must live until Finish() or Abandon(). After kDevice, call Abandon().
  Status Begin(const Part& part, const float* ffn_in, float* results);
  // Computes `hidden` of `rows` on the device from ffn_in, shared and residual. REQUIRES: all
  // experts and all K of each row are for this device; no launch is under way. After kDevice, call
  // Abandon().
  Status BeginThere(const Part& part, const StepBuffers& rows);
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
  const DeviceInfo& info() const { return launcher_->info(); }
  Launcher& launcher() { return *launcher_; }
  // Waits until no copy and no launch of the layer is under way; the layer's results are lost.
  void Abandon();

  // Fills a slot beside the launches. The lease must live until Wait() has returned.
  struct Ticket {
    uint64_t first = 0;
    uint64_t last = 0;
  };
  using Matrices = std::array<const std::byte*, kMatrices>;
  Ticket Fill(ExpertKey key, SlotId slot, const Matrices& matrices);
  // Copies a slot to memory and waits. REQUIRES: the slot is not written meanwhile. kDevice.
  Status Fetch(ExpertKey key, SlotId slot, const std::array<std::byte*, kMatrices>& to) const;
  bool Wait(const Ticket& ticket) { return copier_.Wait(ticket.first, ticket.last); }
  // Copies made, one for each matrix.
  Copier::Made copies_made() const { return copier_.made(); }
  uint64_t copies_per_expert() const { return HasGate(launcher_->shape().activation) ? 3 : 2; }

 private:
  // Experts [first, last) of the plan. The copied experts of this device among them are launched
  // together.
  struct Group {
    size_t first = 0;
    size_t last = 0;
  };
  void BeginPlan(const Part& part);
  bool is_mine(const PlannedExpert& expert) const {
    return expert.place != Place::kHost && expert.device == index_;
  }
  Status LaunchHeld();
  Status LaunchGroup(const Group& group);

  const std::unique_ptr<Launcher> launcher_;
  const ExpertCatalog& catalog_;
  DeviceFaults faults_;
  Copier copier_;

  // State of the layer under way.
  const LayerPlan* plan_ = nullptr;
  uint32_t index_ = 0;  // this device's number in the plan
  std::vector<Group> groups_;
  size_t next_group_ = 0;        // the next group to launch
  bool has_failed_ = false;      // a copy has failed
  std::vector<Ticket> tickets_;  // [expert of the plan]: the expert's copies; 0: not requested
  std::vector<bool> is_there_;   // [expert of the plan]: its copies have landed
};

// The matrices of a lease. REQUIRES: lease.is_complete().
DeviceExperts::Matrices MatricesOf(const Lease& lease);

}  // namespace moestro
