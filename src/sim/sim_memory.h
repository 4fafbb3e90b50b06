// SPDX-License-Identifier: MIT
// Memory as a replay has it: slot tables of every pool, the reads that fill them from the pretend
// disk, and what is prefetched. In the engine that is residency.
//
// Pure. Used by replay.cc, player.cc and sim_devices.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/devices/device_tier.h"
#include "decide/layer/layer_protocol.h"
#include "decide/slots/slot_table.h"
#include "sim/machine.h"
#include "sim/sim_pools.h"

namespace moestro {

// An expert that a layer asked for.
struct Asked {
  PlannedExpert expert = {};
  Placement placed = {};                    // in memory; of no meaning where the expert is staged
  std::vector<Machine::Ticket> reads = {};  // that bring it
  bool is_computed = false;
  bool is_let_go = false;  // its slot
};

class SimMemory final : public ExpertHolder {
 public:
  // `tables` by pool; pools and machine must outlive this. `setup`: seconds that the disk takes for
  // each expert beside its bytes.
  SimMemory(std::vector<SlotTable> tables, const SimPools& pools, Machine& machine, double setup);

  // What a device holds counts as present. The tier must outlive this.
  void SetDevices(DeviceTier* devices) { devices_ = devices; }
  void SetObserver(const SlotTable::Observer& observer);
  void BeginSequence();

  bool has(ExpertKey key) const { return tables_[pools_.of(key)].contains(key); }  // itself
  // How what memory lacks is read; kFree: it is there by itself.
  enum class Reading : uint8_t { kFree, kUrgent, kAhead };
  // Of a plan's expert. nullopt: every slot of the pool is taken.
  std::optional<Asked> Ask(const PlannedExpert& expert, Reading reading);
  // The same of an expert that is read past memory's slots, if memory lacks it.
  std::optional<Asked> Stage(const PlannedExpert& expert);
  // The expert has been used: memory may let it go.
  void Finish(const Asked& asked);
  bool has_all(std::span<const Machine::Ticket> reads) const;
  // How often the bytes in the expert's slot had been computed with before now: 0, 1, or 2 for
  // more. It is computed with now.
  uint32_t Use(const Asked& asked);
  // Of what was prefetched for a layer, complete experts become ready.
  void Settle(uint32_t layer);
  bool has_prefetched() const { return !prefetched_.empty(); }

  // A device gives the expert up; `keeps` stay. Nothing happens without room, or if it is here.
  void Adopt(ExpertKey key, std::span<const ExpertKey> keeps);
  void Drop(ExpertKey key) { table(key).Drop(key); }  // a device has it

  std::vector<ExpertCounts> stats() const;  // [pool]
  std::vector<uint64_t> slots() const;      // [pool]

  // ExpertHolder:
  bool contains(ExpertKey key) const override;
  void BeginLayer(ExpertLayerId layer) override;
  void Predict(ExpertLayerId layer, std::span<const ExpertId> experts) override;
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
  std::vector<std::vector<uint8_t>> uses_;  // [pool][slot]: since it was read, up to 2
  std::vector<Prefetched> prefetched_;      // oldest first
  std::unordered_map<ExpertKey, std::vector<Machine::Ticket>> loading_;  // by reads, not by itself
};

// Each key gets a slot of its pool's table, the first keys as far as there are slots, as if
// prefetched: policies do not know the experts yet, and they leave in the reverse order.
void FillSlots(std::vector<SlotTable>& tables, const SimPools& pools,
               std::span<const ExpertKey> keys);

}  // namespace moestro
