// SPDX-License-Identifier: MIT
// Carries out the decisions about slots: owns the slots' memory, reads absent experts into them and
// hands out leases, the only way to an expert's bytes.
//
// Thread rule: engine thread only. Other threads may read the bytes of a lease after the engine
// thread has seen landed() and passed that on (with a release store of its own).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "compute/host_memory.h"
#include "core/expert_catalog.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/slots/policy.h"
#include "decide/slots/slot_table.h"
#include "store/read_queue.h"

namespace moestro {

class Residency;

// Pins one expert's slot; destruction unpins. REQUIRES: the residency outlives the lease.
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
  // The matrix, laid out as in the file unless notes() has another layout; complete once landed(m).
  // Code that computes with the bytes may lay them out anew if no other thread reads them meanwhile
  // and SetNotes() records the new layout before the lease ends.
  std::byte* matrix(Matrix m) const;
  bool landed(Matrix m) const;
  bool is_complete() const;  // all matrices have landed

  // State of the slot's bytes, recorded by a layer that computes with them for later layers.
  // Cleared when another expert is read into the slot.
  struct Notes {
    bool was_used = false;        // a layer has computed with the bytes
    bool is_interleaved = false;  // each matrix whose kernel interleaves rows lies so
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
  bool is_wanted_;  // leased on demand: a layer waits for the expert
};

class Residency {
 public:
  // `slots` per pool of the catalog. Allocates all slots (touched as they fill) from `memory`. The
  // catalog and queue must outlive this. REQUIRES: no one else enqueues reads in `queue`, whose
  // results this takes. kNoMemory; kUsage for an unknown policy.
  static Result<std::unique_ptr<Residency>> Create(const ExpertCatalog& catalog,
                                                   std::span<const uint64_t> slots,
                                                   const PolicyChoice& policy, ReadQueue& queue,
                                                   const Clock& clock = SteadySeconds,
                                                   const HostMemorySource& memory = {});
  // Call before any lease: allocates slots beside memory's, each for any expert, from which a
  // device copies experts that memory has no use for. kNoMemory.
  Status AllocateStaging(uint64_t slots, const HostMemorySource& memory = {});
  static uint64_t StagingSlotBytes(const ExpertCatalog& catalog, uint64_t block);
  // Makes all slots resident, part `part` of `parts` of the work; threads may each do a part.
  void Populate(size_t part, size_t parts) const;
  // Call after allocating, and with no read under way: lets the reader pin the slots' memory.
  // Returns the number of bytes pinned.
  uint64_t RegisterMemory();
  // All leases are gone before this is.
  ~Residency();

  // Pins an expert and starts reading it if it is absent; never waits. A demand for an expert that
  // is being read speculatively makes the remaining reads urgent. A speculative read may fail: that
  // is no error, and the next request reads again. Returns nullopt if every slot of the pool is
  // leased or loading: release leases or Pump() and try again. `rows` of the step use the expert.
  std::optional<Lease> TryAcquire(ExpertKey key, Use use, Urgency urgency = Urgency::kDemand,
                                  uint32_t rows = 1);
  // Like TryAcquire() on demand, but an expert that memory lacks is read into a staging slot: no
  // expert leaves memory, and the last lease's end frees the staging slot. REQUIRES:
  // AllocateStaging() has made slots.
  std::optional<Lease> TryStage(ExpertKey key, Use use, uint32_t rows);
  // Ends a prefetch of an expert that no layer will use: cancels the reads not yet handed to the
  // device.
  void Withdraw(Lease prefetch);
  bool contains(ExpertKey key) const;
  uint64_t slots(uint32_t pool) const { return pools_[pool].slots.size(); }
  // Experts in the pool's slots, including those still being read; unordered.
  std::vector<ExpertKey> contents(uint32_t pool) const { return pools_[pool].table->keys(); }
  // Layout of a pool's slots: the window of matrix m in slot s is at begin + s * stride +
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
  // The effect of requesting an expert that memory lacks: the expert to evict, or none if a slot is
  // free. `keeps` are not evicted. nullopt: no slot could be given.
  std::optional<SlotTable::Room> RoomFor(ExpertKey key, std::span<const ExpertKey> keeps) const;
  // Takes an expert that a device gives up: assigns a slot, into which `fetch` copies the matrices;
  // `fetch` returns false on failure. Does nothing if no slot can be given or memory has the
  // expert.
  using Fetch = std::function<bool(const std::array<std::byte*, kMatrices>& to)>;
  void Adopt(ExpertKey key, std::span<const ExpertKey> keeps, const Fetch& fetch);
  // Lists experts that an earlier run used, which RecallAhead() then reads, in this order, into
  // free slots. Experts for which no slot is left are not read; a read that fails is no error.
  void Recall(std::vector<SlotTable::Used> experts);
  // Starts reading further recalled experts until `bytes` of them are under way; never blocks. For
  // times in which no step runs.
  void RecallAhead(uint64_t bytes);
  bool is_recalling() const { return next_recalled_ < recalled_.size(); }
  // The experts that decode has used, and how often.
  std::vector<SlotTable::Used> used(uint32_t pool) const { return pools_[pool].table->used(); }
  // Frees the slot of an expert that a device now has, unless the slot is leased or being read.
  void Drop(ExpertKey key);
  // Calls `observer` at every request for memory's slots; for tests that compare with the
  // simulator.
  void SetObserver(const SlotTable::Observer& observer);
  // The decode's clock, for the policies.
  void BeginSequence();
  void BeginLayer(ExpertLayerId layer);
  void Predict(ExpertLayerId layer, std::span<const ExpertId> experts);
  void LearnPrompt(const LayerPlan& plan);  // see LearnPrompt() in slot_table.h

  // Moves reads forward: cheap, never blocks.
  void Pump();
  // Work of another queue that goes on with each Pump(), as cheap.
  void PumpBeside(std::function<void()> beside) { beside_ = std::move(beside); }
  // For use before a long time without Pump(): hands waiting reads to the device, until it has
  // `most_bytes` of them.
  void PumpAhead(uint64_t most_bytes = ReadQueue::kAllThatWaits);
  // Sleeps until a read finishes; returns at once when none is under way.
  void Wait();
  // Like Wait(), but for BlockReader::kBriefly at most.
  void WaitBriefly();
  bool idle() const { return queue_->idle(); }  // no read is under way
  // Waits until no read is under way.
  void Drain();
  // Waits until no read is under way and discards the reads' errors. REQUIRES: no leases.
  void Settle();
  // Stops reads after work that ended early, without waiting: reads for which no lease on demand
  // exists go no further than the parts already at the disk. Those parts still land, and their
  // slots become free then. Forgets errors. A lease not on demand may hold an expert that is never
  // read completely.
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
    uint8_t missing = 0;       // bit per matrix whose read has ended without its bytes
    bool is_recalled = false;  // recalled, and being read
    ExpertKey key{};           // the expert that is being read
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
  bool has_registered_ = false;   // memory, with the reader
  std::function<void()> beside_;  // empty: no other work
  Clock clock_;
  std::vector<Pool> pools_;       // the catalog's pools; then staging slots, if allocated
  std::vector<ExtentDone> done_;  // scratch of Pump
  std::vector<SlotTable::Used> recalled_;
  size_t next_recalled_ = 0;
  uint64_t recalled_bytes_ = 0;  // under way
  std::optional<Error> error_;
  uint64_t dropped_prefetches_ = 0;
  uint64_t staged_bytes_ = 0;
  // Slots that are leased on demand while reads are under way, and the beginning of a time with
  // such slots.
  size_t demands_ = 0;
  double demand_since_ = 0.0;
  double demand_seconds_ = 0.0;
};

}  // namespace moestro
