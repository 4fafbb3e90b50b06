// SPDX-License-Identifier: MIT
// Makes decisions true: owns the slots' memory, reads absent experts into them and hands out
// leases, the only way to an expert's bytes.
//
// Thread rule: engine thread only. Other threads may read the bytes of a lease after the engine
// thread has seen landed() and told them (with a release store of its own).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/slots/expert_counts.h"
#include "decide/slots/policy.h"
#include "decide/slots/slot_table.h"
#include "device/host_memory.h"
#include "store/read_queue.h"

namespace moestro {

class Residency;

// Pins one expert's slot; destruction unpins. Its residency must outlive it.
class Lease {
 public:
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease();

  ExpertKey key() const { return key_; }
  SlotId slot() const { return slot_; }  // of the expert's pool
  Placement::Was was() const { return was_; }
  // The matrix as it stands in the file, unless notes() says otherwise; its bytes are there once
  // landed(m). They may be laid out anew by the code that computes with them, if no other reads
  // them meanwhile and SetNotes() says so before this lease goes.
  std::byte* matrix(Matrix m) const;
  bool landed(Matrix m) const;
  bool is_complete() const;  // all matrices have landed

  // What a layer that computes with these bytes leaves for the next one that does. They are
  // forgotten when other bytes come into the slot.
  struct Notes {
    bool was_used = false;        // a layer has computed with them
    bool is_interleaved = false;  // each matrix lies as its kernel interleaves rows, if that does
    bool is_at_front = false;     // each matrix begins where its window in the slot begins
  };
  Notes notes() const;
  // REQUIRES: is_complete().
  void SetNotes(const Notes& notes) const;

 private:
  friend class Residency;
  Lease(Residency& owner, uint32_t pool, const Placement& placed, ExpertKey key, bool is_wanted)
      : owner_(&owner),
        pool_(pool),
        slot_(placed.slot),
        key_(key),
        was_(placed.was),
        is_wanted_(is_wanted) {}

  Residency* owner_;
  uint32_t pool_;
  SlotId slot_;
  ExpertKey key_;
  Placement::Was was_;
  bool is_wanted_;  // on demand: a layer waits for it
};

class Residency {
 public:
  // `slots` per pool of the catalog. Allocates all slots (touched as they fill) from `memory`. The
  // catalog and queue must outlive this. kNoMemory; kUsage for an unknown policy.
  static Result<std::unique_ptr<Residency>> Create(const ExpertCatalog& catalog,
                                                   std::span<const uint64_t> slots,
                                                   const PolicyChoice& policy, ReadQueue& queue,
                                                   const Clock& clock = SteadySeconds,
                                                   const HostMemorySource& memory = {});
  // Before anything is acquired: slots beside memory's, each for any expert, from which a device
  // copies what it has no use for in memory. kNoMemory.
  Status AllocateStaging(uint64_t slots, const HostMemorySource& memory = {});
  static uint64_t StagingSlotBytes(const ExpertCatalog& catalog, uint64_t block);
  // Makes all slots resident, part `part` of `parts` of the work; threads may each do a part.
  void Populate(size_t part, size_t parts) const;
  // After that, and with no read under way: lets the reader pin the slots' memory. Returns the
  // bytes that it did pin.
  uint64_t RegisterMemory();
  // All leases are gone before this is.
  ~Residency();

  // Pins an expert and starts reading it if it is absent; never waits. A demand for an expert that
  // is on its way speculatively makes the rest of it urgent. A speculative read may fail: that is
  // no error, and the next request reads again. nullopt: every slot of its pool is leased or
  // loading: let leases go or Pump() and ask again. `rows` of the step use the expert.
  std::optional<Lease> TryAcquire(ExpertKey key, Use use, Urgency urgency = Urgency::kDemand,
                                  uint32_t rows = 1);
  // The same on demand, but what memory lacks is read into a staging slot: no expert leaves memory
  // for it, and it is gone with its last lease. REQUIRES: there are staging slots.
  std::optional<Lease> TryStage(ExpertKey key, Use use, uint32_t rows);
  // Ends a prefetch of an expert that no layer will use: what the device has not been asked for yet
  // is not read.
  void Withdraw(Lease prefetch);
  bool contains(ExpertKey key) const;
  uint64_t slots(uint32_t pool) const { return pools_[pool].slots.size(); }
  // Who is in a pool's slots or on the way there, in no order.
  std::vector<ExpertKey> contents(uint32_t pool) const { return pools_[pool].table->keys(); }
  // Where a pool's slots lie: the window of matrix m in slot s is at begin + s * stride +
  // offset[m].
  struct Grid {
    std::byte* begin = nullptr;
    uint64_t stride = 0;
    uint64_t slots = 0;
    std::array<uint64_t, kMatrices> offset{};
  };
  // REQUIRES: the slots came from memory in one piece.
  Grid grid(uint32_t pool) const;
  // The largest piece of the slots' memory. Reads may be under way there.
  std::span<const std::byte> memory() const;
  // What would leave for an expert that memory lacks; `keeps` stay. nullopt: there is no room.
  std::optional<SlotTable::Room> RoomFor(ExpertKey key, std::span<const ExpertKey> keeps) const;
  // A device gives the expert up: it takes a slot, and `fetch` fills that and says if it could.
  // Does nothing without room, or if memory has it.
  using Fetch = std::function<bool(const std::array<std::byte*, kMatrices>& to)>;
  void Adopt(ExpertKey key, std::span<const ExpertKey> keeps, const Fetch& fetch);
  // Experts that an earlier run used, which RecallAhead() reads, in this order, into slots that are
  // free. Those for which no slot is left are not read; a read that fails is no error.
  void Recall(std::vector<SlotTable::Used> experts);
  // Begins with further ones until about so many bytes of them are under way; never blocks. For
  // times in which no step runs.
  void RecallAhead(uint64_t bytes);
  bool is_recalling() const { return next_recalled_ < recalled_.size(); }
  // The experts that decode has used, and how often.
  std::vector<SlotTable::Used> used(uint32_t pool) const { return pools_[pool].table->used(); }
  // A device has the expert: its slot is free again, unless it is leased or on its way.
  void Drop(ExpertKey key);
  // Told of every request for memory's slots; for tests that compare with the simulator.
  void SetObserver(const SlotTable::Observer& observer);
  // The decode's clock, for the policies.
  void BeginSequence();
  void BeginLayer(ExpertLayerId layer);
  void Predict(ExpertLayerId layer, std::span<const ExpertId> experts);
  void LearnPrompt(const LayerPlan& plan);  // see prompt_rows.h

  // Moves reads forward: cheap, never blocks.
  void Pump();
  // Before a long time without Pump(): the device gets all reads that wait, or until it has
  // `most_bytes` of them.
  void PumpAhead(uint64_t most_bytes = ReadQueue::kAllThatWaits);
  // Sleeps until a read finishes; returns at once when none is under way.
  void Wait();
  // The same, but for BlockReader::kBriefly at most.
  void WaitBriefly();
  bool idle() const { return queue_->idle(); }  // no read is under way
  // Waits until no read is under way.
  void Drain();
  // Waits until no read is under way and forgets their errors. REQUIRES: no leases.
  void Settle();
  // After work that ended early, and without waiting: what no lease on demand wants is read no
  // further than the disk has been asked to. That lands where it was to, and its slots come back
  // then. Forgets errors. A lease that is not on demand may hold an expert that never comes.
  void Abandon();
  // The first failed read of an expert leased on demand since the last call.
  std::optional<Error> TakeError();

  ExpertCounts stats() const;
  uint64_t block() const { return block_; }  // bytes of the disk's blocks

 private:
  friend class Lease;
  static constexpr uint8_t kAllLanded = (1U << kMatrices) - 1;
  struct Slot {
    std::array<uint64_t, kMatrices> residue{};
    uint8_t landed = 0;        // bit per matrix
    uint8_t outstanding = 0;   // reads not finished
    uint8_t wanted = 0;        // leases on demand
    uint8_t missing = 0;       // bit per matrix that is not read any more
    bool is_recalled = false;  // and on its way
    ExpertKey key{};           // what is being read
    Lease::Notes notes;
  };
  struct Pool {
    std::array<uint64_t, kMatrices> offset{};  // of each matrix's window in a slot
    std::array<uint64_t, kMatrices> capacity{};
    uint64_t stride = 0;
    std::vector<HostMemory> memory;  // pieces of `slots_per_piece` slots
    uint64_t slots_per_piece = 1;
    std::vector<Slot> slots;
    std::unique_ptr<SlotTable> table;
  };

  Residency(const ExpertCatalog& catalog, ReadQueue& queue, Clock clock)
      : catalog_(&catalog), block_(queue.block()), queue_(&queue), clock_(std::move(clock)) {}
  static Status Allocate(Pool& pool, uint64_t slots, const HostMemorySource& source);
  static std::array<uint64_t, kMatrices> CapacityFor(const PoolShape& shape, uint64_t block);
  static std::array<uint64_t, kMatrices> StagingCapacity(const ExpertCatalog& catalog,
                                                         uint64_t block);
  Status AddPool(const std::array<uint64_t, kMatrices>& capacity, uint64_t slots,
                 const PolicyChoice& policy, const HostMemorySource& memory);
  Lease LeaseOf(uint32_t pool, const Placement& placed, ExpertKey key, Urgency urgency);
  uint32_t staging() const { return static_cast<uint32_t>(catalog_->pools.size()); }
  void StartReads(uint32_t pool, SlotId slot, ExpertKey key, Urgency urgency);
  void StartRead(uint32_t pool, SlotId slot, ExpertKey key, size_t matrix, Urgency urgency);
  void MakeUrgent(uint32_t pool, SlotId slot, ExpertKey key);
  void Close(uint32_t pool, SlotId id);
  void Abandon(uint32_t pool, SlotId id);
  void RecallNext();
  void BeginDemand();
  void EndDemand();
  void Finish(const ExtentDone& done);
  void Unpin(const Lease& lease);
  std::byte* window(const Pool& pool, SlotId slot, size_t matrix) const {
    return pool.memory[slot.value / pool.slots_per_piece].data() +
           slot.value % pool.slots_per_piece * pool.stride + pool.offset[matrix];
  }

  const ExpertCatalog* catalog_;
  uint64_t block_;
  ReadQueue* queue_;
  Clock clock_;
  std::vector<Pool> pools_;       // the catalog's; then the staging slots, if there are any
  std::vector<ExtentDone> done_;  // scratch of Pump
  std::vector<SlotTable::Used> recalled_;
  size_t next_recalled_ = 0;
  uint64_t recalled_bytes_ = 0;  // under way
  std::optional<Error> error_;
  uint64_t dropped_prefetches_ = 0;
  uint64_t staged_bytes_ = 0;
  // Slots with reads under way that are leased on demand, and since when there are such.
  size_t demands_ = 0;
  double demand_since_ = 0.0;
  double demand_seconds_ = 0.0;
};

}  // namespace moestro
