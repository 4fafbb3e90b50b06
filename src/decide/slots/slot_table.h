// SPDX-License-Identifier: MIT
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
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/slots/expert_counts.h"
#include "decide/slots/policy.h"

namespace moestro {

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
  void Unpin(SlotId slot);
  void Landed(SlotId slot);
  // The expert's reads have failed: the slot is free again once no lease pins it.
  void Failed(SlotId slot);
  // Removes an expert that a device has now, if it is ready and no lease pins it; else it stays.
  void Drop(ExpertKey key);

  bool contains(ExpertKey key) const { return FindSlot(key).has_value(); }
  bool is_ready(ExpertKey key) const;
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

}  // namespace moestro
