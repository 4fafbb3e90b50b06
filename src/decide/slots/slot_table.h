// SPDX-License-Identifier: MIT
// Slots of experts: which expert is where, who leaves, what is counted, and the room that is kept
// free. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/counters.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/slots/policy.h"

namespace moestro {

// Maps experts to slots and chooses victims: the state behind every hit and miss. Pure (see
// policy.h); the engine and the simulator drive the same table, so their decisions agree.
//
// A slot is free, loading or ready. Leases pin it; a pinned or loading slot never leaves. Experts
// that no decode step has used yet are transient: those of a prompt and those prefetched. The
// policy has no rank for them, and they leave before anything that decode has used, newest first
// while a prefill goes on: one long prompt neither washes out decode's history nor flushes its own
// first layers (a cyclic sweep through an LRU of a third of the size hits nothing), and a wrong
// prefetch is the first to leave. Prefetching a resident expert only pins it; no prefetch counts as
// a request, a hit or a miss.

// Counts of requests for experts and of their costs. A slot table counts the requests, its owner
// the reads; a run's report has both.

struct ExpertCounts {
  uint64_t requests = 0;  // (layer, expert), once for all rows of a step
  uint64_t hits = 0;      // ready when asked
  uint64_t misses = 0;    // not ready when asked: absent, or still under way
  uint64_t late = 0;      // of the misses, under way
  uint64_t evictions = 0;
  uint64_t row_requests = 0;     // (row, layer, expert)
  uint64_t row_hits = 0;         // row requests whose expert was ready
  uint64_t prefetches = 0;       // absent experts that were fetched before their router chose them
  uint64_t used_prefetches = 0;  // prefetched experts that were requested before they left
  uint64_t dropped_prefetches = 0;  // prefetched experts given up before they were read completely
  double demand_seconds = 0.0;      // while a read was under way that a layer waited for
  uint64_t asked_bytes = 0;         // of experts, each request
  uint64_t needed_bytes = 0;        // bytes of requested experts that had to be read
  uint64_t bytes_read = 0;          // by the disk, padding included

  uint64_t absent() const { return misses - late; }  // when asked
  double hit_rate() const { return Share(hits, requests); }
  double row_hit_rate() const { return Share(row_hits, row_requests); }

  static constexpr void Visit(auto&& visit) {
    using C = ExpertCounts;
    visit(&C::requests, CounterText{.json = "expert_uses", .sim = "requests"});
    visit(&C::hits, CounterText{.sim = "hits",
                                .metric = "expert_hits_total",
                                .meaning = "Experts that were in memory when a layer asked."});
    visit(&C::misses, CounterText{.sim = "misses",
                                  .metric = "expert_misses_total",
                                  .meaning = "Experts that were not."});
    visit(&C::hit_rate, CounterText{.json = "hit_rate", .sim = "hit_rate"});
    visit(&C::row_requests, CounterText{.json = "row_uses"});
    visit(&C::row_hits, CounterText{});
    visit(&C::row_hit_rate, CounterText{.json = "row_hit_rate"});
    visit(&C::evictions, CounterText{.json = "evictions",
                                     .sim = "evictions",
                                     .metric = "expert_evictions_total",
                                     .meaning = "Experts that left memory for others."});
    visit(&C::late, CounterText{.json = "late", .sim = "late"});
    visit(&C::prefetches, CounterText{.json = "prefetches",
                                      .sim = "prefetches",
                                      .metric = "expert_prefetches_total",
                                      .meaning = "Experts that were read before a layer asked."});
    visit(&C::used_prefetches, CounterText{.json = "used_prefetches",
                                           .sim = "used_prefetches",
                                           .metric = "expert_prefetches_used_total",
                                           .meaning = "Of these, experts that a layer asked for."});
    visit(&C::dropped_prefetches, CounterText{.json = "dropped_prefetches"});
    visit(&C::demand_seconds, CounterText{});
    visit(&C::asked_bytes, CounterText{});
    visit(&C::bytes_read, CounterText{.json = "disk_bytes_decode",
                                      .prefill = "disk_bytes_prefill",
                                      .metric = "disk_read_bytes_total",
                                      .meaning = "Bytes of experts that were read from disk."});
    visit(&C::needed_bytes, CounterText{.json = "needed_bytes_decode"});
  }
};
static_assert(CountsAllOf<ExpertCounts>());

struct Placement {
  enum class Was : uint8_t { kReady, kLoading, kAbsent };
  SlotId slot;
  Was was = Was::kAbsent;
  std::optional<ExpertKey> evicted;  // set when an absent expert took an occupied slot
};

class SlotTable final : private PinView {
 public:
  // Keys are of the layers and experts of the shape.
  SlotTable(const PolicyShape& shape, std::unique_ptr<Policy> policy);

  // Called after each request that got a slot (hit or miss), in order.
  using Observer = std::function<void(ExpertKey, Use, const Placement&)>;
  void SetObserver(Observer observer) { observer_ = std::move(observer); }

  // The decode's clock, for the policy (see policy.h).
  void BeginSequence() { policy_->SequenceBegun(); }
  void BeginLayer(ExpertLayerId layer) { policy_->LayerBegun(layer); }
  // Decode has used a copy of an expert that has its slots in another table.
  void OtherCopyUsed(ExpertKey ran, uint32_t rows) { policy_->OtherCopyUsed(ran, rows); }
  void Predict(ExpertLayerId layer, std::span<const ExpertId> experts) {
    policy_->Predicted(layer, experts);
  }
  // Passes a prompt row's choices among this table's experts to the policy (see policy.h).
  void LearnPrompt(ExpertLayerId layer, std::span<const ExpertId> experts) {
    policy_->Prompted(layer, experts);
  }

  // Finds the slot of `key` or gives it one, and pins the slot once. An absent key's slot is left
  // loading: the caller fills it and calls Landed() or Failed(). nullopt: every slot is pinned or
  // loading. `rows` of the step use it.
  std::optional<Placement> Request(ExpertKey key, Use use, uint32_t rows = 1);
  // The effect of a request for an absent expert: it takes a free slot if `evicts` is empty.
  // nullopt: it would find no room. Experts in `keeps`, each once, stay as if they were pinned.
  struct Room {
    std::optional<ExpertKey> evicts;
  };
  std::optional<Room> RoomFor(Use use, std::span<const ExpertKey> keeps = {}) const;
  // Adopts an expert that a device gives up and that this table lacks: it takes a slot, loading and
  // pinned, as if decode had just used it, and counts as no request. The victim is that of
  // RoomFor(); nullopt: no room.
  std::optional<Placement> Adopt(ExpertKey key, std::span<const ExpertKey> keeps);
  // An expert that an earlier run used `uses` times takes a free slot, loading and pinned, as if
  // decode had just used it, and counts as no request. nullopt: the table has the expert, or no
  // slot is free.
  std::optional<Placement> Recall(ExpertKey key, uint32_t uses);
  // Gives an expert this slot, pinned once, whatever else is in the slot; an absent expert's slot
  // is left loading, as a prefetch leaves its slot. An expert in another slot counts as absent.
  // REQUIRES: neither the slot nor the expert is pinned.
  Placement Claim(ExpertKey key, SlotId slot);
  void Unpin(SlotId slot);
  void Landed(SlotId slot);
  // The expert's reads have failed: the slot is free again once no lease pins it.
  void Failed(SlotId slot);
  // Removes an expert that a device has now, if it is ready and no lease pins it; else it stays.
  void Drop(ExpertKey key);

  bool contains(ExpertKey key) const { return FindSlot(key).has_value(); }
  bool is_ready(ExpertKey key) const;
  // REQUIRES: contains(key).
  SlotId SlotOf(ExpertKey key) const { return *FindSlot(key); }
  std::vector<ExpertKey> keys() const;  // resident and loading experts, in no order
  // The experts that decode has used, and the number of rows that used each since it took its slot,
  // in no order.
  struct Used {
    ExpertKey key;
    uint32_t uses = 0;
  };
  std::vector<Used> used() const;
  size_t slots() const { return entries_.size(); }
  // Slots that requests for absent experts could take.
  size_t room() const { return idle_ + free_.size(); }
  // Requests and prefetches; seconds and bytes stay 0.
  const ExpertCounts& stats() const { return stats_; }

 private:
  enum class State : uint8_t { kFree, kLoading, kReady, kFailed };
  struct Entry {
    ExpertKey key{};
    State state = State::kFree;
    bool transient = false;             // listed in transient_, unknown to the policy
    bool prefetched = false;            // and not used yet
    std::list<SlotId>::iterator place;  // in transient_, if listed
    uint32_t pins = 0;
    uint32_t uses = 0;  // rows of decode
  };

  bool is_pinned(SlotId slot) const override;
  size_t IndexOf(ExpertKey key) const;
  std::optional<SlotId> FindSlot(ExpertKey key) const;
  void SetSlot(ExpertKey key, uint32_t slot);
  std::optional<Placement> Find(ExpertKey key, Use use, uint32_t rows);
  Placement Reuse(SlotId slot, Use use, uint32_t rows);
  std::optional<SlotId> FindRoom(Use use, std::optional<ExpertKey>& evicted);
  class Keeping;
  SlotId VictimFor(Use use, const PinView& pins) const;
  std::optional<SlotId> TransientVictim(Use use, const PinView& pins) const;
  void Unlist(Entry& entry);
  void Empty(SlotId slot);
  void Occupy(SlotId slot, ExpertKey key, Use use, uint32_t rows);

  std::unique_ptr<Policy> policy_;
  uint32_t layers_;
  uint32_t experts_;
  std::vector<Entry> entries_;
  std::vector<SlotId> free_;
  std::list<SlotId> transient_;  // oldest first
  // By copy, layer and expert: a layer's experts are looked up together, and lie together.
  static constexpr uint32_t kNoSlot = ~0U;
  std::vector<uint32_t> slot_of_;
  size_t idle_ = 0;  // ready and not pinned
  ExpertCounts stats_;
  Observer observer_;
};

// Room for experts that keep slots of memory for later. Prefetches, an upgrade and copies to
// devices keep slots while a layer requests its own experts and waits for none of them. So they
// leave as many slots as a layer may request at once, or in smaller pools at least one, through
// which the layer's experts pass. Pure.

// Room of one pool in one step. Slots are kept for at most prefetches() + promotions() experts, and
// for one more if may_upgrade(); together these are fewer than all slots.
struct PoolRoom {
  uint64_t slots = 0;
  uint64_t own = 0;  // the most slots that a layer of the step requests

  // Slots for experts of later layers. Their victims are chosen from at least half of the pool.
  uint64_t prefetches() const { return slots > 2 * own ? (slots - 2 * own) / 2 : 0; }
  // Whether a slot may hold the own copy of an expert whose low copy ran.
  bool may_upgrade() const { return slots > 1; }
  // Slots for experts that are copied to devices; each keeps its slot until the step after.
  uint64_t promotions() const {
    const uint64_t others = own + prefetches() + 1;
    return slots > others ? slots - others : 0;
  }
};

// The most experts that a layer requests in a step of so many rows.
inline uint64_t MostOwn(uint32_t n_expert, uint32_t n_used, uint64_t rows) {
  return std::min<uint64_t>(n_expert, rows * n_used);
}

// Passes the choices of a plan's prompt rows to the slot tables of all pools. Pure.

// Passes a prompt's choices to the slot tables, to each table those of its own pool. Pools of low
// copies get none: a prompt counts uses of a model's own experts. `pool_of(key)` is the pool of an
// expert, `table_of(pool)` that pool's SlotTable.
template <class PoolOf, class TableOf>
void LearnPrompt(const LayerPlan& plan, PoolOf pool_of, TableOf table_of) {
  const auto pool_of_expert = [&](ExpertId e) {
    return pool_of(ExpertKey{.layer = plan.layer, .expert = e});
  };
  std::vector<ExpertId> left;
  for (size_t begin = 0; begin < plan.learned.size(); begin += plan.n_used) {
    left.assign_range(std::span(plan.learned).subspan(begin, plan.n_used));
    while (!left.empty()) {
      const auto pool = pool_of_expert(left.front());
      const auto others = std::ranges::stable_partition(
          left, [&](ExpertId e) { return pool_of_expert(e) == pool; });
      table_of(pool).LearnPrompt(plan.layer, std::span(left.begin(), others.begin()));
      left.erase(left.begin(), others.begin());
    }
  }
}

}  // namespace moestro
