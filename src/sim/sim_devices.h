// SPDX-License-Identifier: MIT
// The devices of a replay and their lanes beside the pretend processor. The engine's own DeviceTier
// decides the place of each expert and the copies for later. In the engine DeviceList carries this
// out.
//
//   devices.BeginStep(...)
//     devices.Assign(plan)       a layer begins
//     devices.ComputeOnHost(...) and devices.Copy(...) for each expert that was requested in memory
//     devices.Done(plan)         the layer ends with its last lane
//   devices.EndStep()
//
// Experts in a device's slots are launched when the layer begins. Copied experts are launched after
// the last copy has landed. A link copies one expert at a time. Copies for later use a link while
// layers leave it idle. A layer's own copies wait for them, and the next step does too.
//
// Pure. Used by player.cc and replay.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/devices/device_tier.h"
#include "decide/slots/slot_table.h"
#include "sim/machine.h"
#include "sim/sim_memory.h"

namespace moestro {

// The slot tables of a machine with lanes, as in DeviceTierSetup.
struct SimTables {
  std::vector<std::vector<std::optional<SlotTable>>> devices;  // [device][copy]
  // [pool] the model of memory, as plans see it
  std::vector<SlotTable> model;
  // [device] The experts of devices whose experts stay the same.
  std::vector<std::vector<ExpertKey>> settled = {};
  Tiers tiers = Tiers::kInclusive;
};

class SimDevices {
 public:
  // All arguments must outlive this. Devices are filled with the experts of lanes.first, and those
  // whose experts stay the same with tables.settled.
  SimDevices(const LaneMachine& lanes, SimTables tables, const MoeShape& shape, SimMemory& memory,
             const SimPools& pools, Machine& machine);

  DeviceTier& tier() { return tier_; }
  const DeviceTier& tier() const { return tier_; }
  void BeginSequence() { tier_.BeginSequence(); }
  // Copies for later have landed. Devices are filled as DeviceTier::FillByUses() has it.
  void BeginStep(size_t tokens, bool decodes, bool counts);
  void EndStep();

  // Seconds of a layer's dense part. REQUIRES: rows >= 1.
  double DenseSeconds(size_t rows) const;
  void DenseDone(double seconds);
  // Gives each expert its place. Experts that move back are in memory afterwards.
  void Assign(LayerPlan& plan);
  // REQUIRES: the expert's reads are done.
  void ComputeOnHost(const Asked& asked);
  void Copy(const Asked& asked);
  void WaitForCopies(uint32_t device);  // waits until all copies so far have landed
  // REQUIRES: memory has released the layer's experts.
  void Done(LayerPlan& plan);

  // Seconds of the busiest lane's own work in this step's layers, the dense part included: no step
  // can be faster.
  double busiest() const { return busiest_; }
  const LanesResult& result() const { return result_; }

 private:
  struct UnderWay {
    DeviceTier::Promotion promotion;
    Asked asked;  // the expert keeps its slot of memory
  };

  uint64_t BytesOf(ExpertKey key) const { return bytes_[pools_.of(key)]; }
  void FillByUses();
  void WaitFor(std::span<const Machine::Ticket> reads);
  double LandedAt(std::span<const Machine::Ticket> reads);
  void MoveBack(ExpertKey key, uint32_t device, std::span<const ExpertKey> keeps);
  void Promote(const LayerPlan& plan);
  void CountWhere(const LayerPlan& plan);
  void CountWork(const LayerPlan& plan);

  const LaneMachine& lanes_;
  SimMemory& memory_;
  const SimPools& pools_;
  Machine& machine_;
  std::vector<uint64_t> bytes_;  // [pool of memory], of an expert
  DeviceTier tier_;
  std::vector<UnderWay> promotions_;
  // [device], seconds of the device's link that copies for later still take
  std::vector<double> backlog_;
  LanesResult result_;
  LanePhase uncounted_;
  LanePhase* phase_ = nullptr;  // of the step
  double step_began_ = 0.0;
  double step_bytes_ = 0.0;  // handed to the disk before the step
  double busiest_ = 0.0;
  // State of the layer under way.
  double began_ = 0.0;
  double host_factor_ = 1.0;
  double host_busy_ = 0.0;
  bool uses_host_ = false;
  LaneTimes times_;
  std::vector<double> copied_;  // [device], seconds of computing the copied experts
};

}  // namespace moestro
