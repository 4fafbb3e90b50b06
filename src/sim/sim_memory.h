// SPDX-License-Identifier: MIT
// The memory of a replay: slot tables of every pool, the reads that fill slots from the pretend
// disk, and the prefetched experts. In the engine this is residency.
//
// Pure. Used by replay.cc, player.cc and sim_devices.cc.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/expert_catalog.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/run_identity.h"
#include "decide/devices/device_tier.h"
#include "decide/layer/layer_protocol.h"
#include "decide/slots/slot_table.h"
#include "sim/machine.h"
#include "sim/replay.h"
#include "trace/trace.h"

namespace moestro {

// The pools of slots of a replay: the pools of the trace's model, and one more for low copies. Pure
// values; used by replay.cc and the player.

class SimPools {
 public:
  SimPools(const TraceInfo& info, const ReplayOptions& options);

  size_t size() const { return matrices_.size(); }
  // Pools of the model's own copies, the first ones.
  size_t own() const { return own_.pools.size(); }
  uint64_t n_experts() const { return shape_.experts(); }  // of all layers
  uint32_t of(ExpertKey key) const {
    return key.copy == 0 ? own_.of(key, shape_.n_expert) : low_pool();
  }
  // The pools that the copies of a layer's experts use, each once.
  std::span<const uint32_t> of_layer(ExpertLayerId layer) const { return layers_[layer.value]; }
  const std::array<double, kMatrices>& matrices(uint32_t pool) const { return matrices_[pool]; }
  double expert_bytes(uint32_t pool) const {
    return matrices_[pool][0] + matrices_[pool][1] + matrices_[pool][2];
  }
  // The mean bytes of all experts' own copies.
  double mean_bytes() const { return mean_bytes_; }

 private:
  uint32_t low_pool() const { return static_cast<uint32_t>(matrices_.size() - 1); }

  MoeShape shape_;
  ExpertPools own_;
  std::vector<std::array<double, kMatrices>> matrices_;  // [pool]: bytes
  std::vector<std::vector<uint32_t>> layers_;            // [layer]
  double mean_bytes_ = 0.0;
};

// An expert that a layer has requested.
struct Asked {
  PlannedExpert expert = {};
  Placement placed = {};                    // in memory; not used if the expert is staged
  std::vector<Machine::Ticket> reads = {};  // the reads that bring the expert
  bool is_computed = false;
};

class SimMemory final : public ExpertHolder {
 public:
  // `tables` by pool; pools and machine must outlive this. `setup`: seconds that the disk takes for
  // each expert beside its bytes.
  SimMemory(std::vector<SlotTable> tables, const SimPools& pools, Machine& machine, double setup);

  // Experts on a device count as present. The tier must outlive this.
  void SetDevices(DeviceTier* devices) { devices_ = devices; }
  void SetObserver(const SlotTable::Observer& observer);
  void BeginSequence();

  bool has(ExpertKey key) const { return tables_[pools_.of(key)].contains(key); }  // itself
  // Kind of reads for a missing expert; kFree: the expert is present without a read.
  enum class Reading : uint8_t { kFree, kUrgent, kAhead };
  // Requests a plan's expert. nullopt: every slot of the pool is taken.
  std::optional<Asked> Ask(const PlannedExpert& expert, Reading reading);
  // Requests a plan's expert as Ask() does, but an expert that memory lacks is read past memory's
  // slots.
  std::optional<Asked> Stage(const PlannedExpert& expert);
  // Call after the expert's use: memory may then give it up.
  void Finish(const Asked& asked);
  bool has_all(std::span<const Machine::Ticket> reads) const;
  // Counts a use of the bytes in the expert's slot. Returns the number of earlier uses: 0, 1, or 2
  // for two and more.
  uint32_t Use(const Asked& asked);
  // Prefetched experts of a layer become ready if their reads are done.
  void Settle(uint32_t layer);
  bool has_prefetched() const { return !prefetched_.empty(); }

  // Takes an expert that a device gives up; the experts of `keeps` stay. Nothing happens without a
  // slot, or if memory has the expert.
  void Adopt(ExpertKey key, std::span<const ExpertKey> keeps);
  void Drop(ExpertKey key) { table(key).Drop(key); }  // a device now has the expert

  std::vector<ExpertCounts> stats() const;  // [pool]
  std::vector<uint64_t> slots() const;      // [pool]

  // ExpertHolder:
  bool contains(ExpertKey key) const override;
  void BeginLayer(ExpertLayerId layer) override;
  void Predict(ExpertLayerId layer, std::span<const ExpertId> experts) override;
  void LearnPrompt(const LayerPlan& plan) override;
  bool Prefetch(ExpertKey key) override;
  void Withdraw(ExpertKey key) override;
  void Release(ExpertKey key) override;
  bool is_complete(ExpertKey key) const override;

 private:
  // An expert that was prefetched for a later layer, pinned until that layer has run.
  struct Prefetched {
    ExpertKey key;
    SlotId slot;
    bool is_ready = true;
    std::vector<Machine::Ticket> reads = {};
  };

  SlotTable& table(ExpertKey key) { return tables_[pools_.of(key)]; }
  std::vector<Machine::Ticket> ReadsOf(ExpertKey key, const Placement& placed, bool is_urgent);
  std::vector<Machine::Ticket> Read(ExpertKey key, bool is_urgent);
  void Land(ExpertKey key, SlotId slot);
  std::vector<Prefetched>::iterator Find(ExpertKey key);

  std::vector<SlotTable> tables_;  // by pool
  const SimPools& pools_;
  Machine& machine_;
  double setup_;
  DeviceTier* devices_ = nullptr;
  std::vector<std::vector<uint8_t>> uses_;  // [pool][slot]: uses since the read, up to 2
  std::vector<Prefetched> prefetched_;      // oldest first
  // experts that reads are bringing
  std::unordered_map<ExpertKey, std::vector<Machine::Ticket>> loading_;
};

// Each key gets a slot of its pool's table, in order while slots are free, as a prefetched expert
// does. Policies do not know these experts yet, and the experts leave in the reverse order.
void FillSlots(std::vector<SlotTable>& tables, const SimPools& pools,
               std::span<const ExpertKey> keys);

}  // namespace moestro
