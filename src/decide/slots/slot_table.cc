// SPDX-License-Identifier: MIT
#include "decide/slots/slot_table.h"

#include <algorithm>
#include <utility>

#include "base/result.h"
#include "decide/slots/policies/policies.h"

namespace moestro {

SlotTable::SlotTable(const PolicyShape& shape, std::unique_ptr<Policy> policy)
    // Where every expert has a slot none is ever evicted: a policy's experience has no use.
    : policy_(shape.has_slot_for_each() ? std::make_unique<LruPolicy>() : std::move(policy)),
      layers_(shape.layers),
      experts_(shape.experts),
      entries_(shape.slots) {
  policy_->Reset(shape);
  free_.reserve(shape.slots);
  for (size_t i = shape.slots; i > 0; --i) free_.push_back(SlotId{static_cast<uint32_t>(i - 1)});
}

size_t SlotTable::IndexOf(ExpertKey key) const {
  CHECK(key.layer.value < layers_ && key.expert.value < experts_);
  return (size_t{key.copy} * layers_ + key.layer.value) * experts_ + key.expert.value;
}

std::optional<SlotId> SlotTable::FindSlot(ExpertKey key) const {
  const size_t index = IndexOf(key);
  if (index >= slot_of_.size() || slot_of_[index] == kNoSlot) return std::nullopt;
  return SlotId{slot_of_[index]};
}

void SlotTable::SetSlot(ExpertKey key, uint32_t slot) {
  const size_t of_copies = (size_t{key.copy} + 1) * layers_ * experts_;
  if (slot_of_.size() < of_copies) slot_of_.resize(of_copies, kNoSlot);
  slot_of_[IndexOf(key)] = slot;
}

std::optional<Placement> SlotTable::Request(ExpertKey key, Use use, uint32_t rows) {
  const std::optional<Placement> placed = Find(key, use, rows);
  if (placed && observer_) observer_(key, use, *placed);
  return placed;
}

std::optional<Placement> SlotTable::Find(ExpertKey key, Use use, uint32_t rows) {
  if (const std::optional<SlotId> slot = FindSlot(key)) return Reuse(*slot, use, rows);
  Placement placement;
  const std::optional<SlotId> room = FindRoom(use, placement.evicted);
  if (!room) return std::nullopt;
  if (use == Use::kPrefetch) {
    ++stats_.prefetches;
  } else {
    ++stats_.requests;
    ++stats_.misses;
    stats_.row_requests += rows;
  }
  placement.slot = *room;
  Occupy(*room, key, use, rows);
  return placement;
}

Placement SlotTable::Reuse(SlotId slot, Use use, uint32_t rows) {
  Entry& entry = entries_[slot.value];
  const bool ready = entry.state == State::kReady;
  if (use != Use::kPrefetch) {
    ++stats_.requests;
    ++(ready ? stats_.hits : stats_.misses);
    stats_.late += ready ? 0 : 1;
    stats_.row_requests += rows;
    stats_.row_hits += ready ? rows : 0;
    stats_.used_prefetches += std::exchange(entry.prefetched, false);
  }
  if (ready && entry.pins == 0) --idle_;
  ++entry.pins;
  if (use == Use::kDecode) entry.uses += std::min(rows, UINT32_MAX - entry.uses);
  if (use == Use::kDecode && entry.transient) {
    Unlist(entry);
    policy_->Inserted(slot, entry.key, rows);
  } else if (use == Use::kDecode) {
    policy_->Touched(slot, rows);
  }
  return {.slot = slot,
          .was = ready ? Placement::Was::kReady : Placement::Was::kLoading,
          .evicted = std::nullopt};
}

void SlotTable::Occupy(SlotId slot, ExpertKey key, Use use, uint32_t rows) {
  Entry& entry = entries_[slot.value];
  entry.key = key;
  entry.state = State::kLoading;
  entry.pins = 1;
  entry.transient = use != Use::kDecode;
  entry.prefetched = use == Use::kPrefetch;
  entry.uses = use == Use::kDecode ? rows : 0;
  if (entry.transient) {
    entry.place = transient_.insert(transient_.end(), slot);
  } else {
    policy_->Inserted(slot, key, rows);
  }
  SetSlot(key, slot.value);
}

std::optional<SlotId> SlotTable::FindRoom(Use use, std::optional<ExpertKey>& evicted) {
  if (!free_.empty()) {
    const SlotId slot = free_.back();
    free_.pop_back();
    return slot;
  }
  if (idle_ == 0) return std::nullopt;
  const SlotId slot = VictimFor(use, *this);
  CHECK(!is_pinned(slot));
  evicted = entries_[slot.value].key;
  ++stats_.evictions;
  --idle_;
  Empty(slot);
  return slot;
}

// Slots of some experts count as pinned.
class SlotTable::Keeping final : public PinView {
 public:
  Keeping(const SlotTable& table, std::span<const ExpertKey> keys) : table_(table), keys_(keys) {}

  bool is_pinned(SlotId slot) const override {
    return table_.is_pinned(slot) || std::ranges::contains(keys_, table_.entries_[slot.value].key);
  }
  // Number of the resident experts that only this view pins.
  size_t n_kept() const {
    return static_cast<size_t>(std::ranges::count_if(keys_, [this](ExpertKey key) {
      const std::optional<SlotId> slot = table_.FindSlot(key);
      return slot && !table_.is_pinned(*slot);
    }));
  }

 private:
  const SlotTable& table_;
  std::span<const ExpertKey> keys_;
};

std::optional<SlotTable::Room> SlotTable::RoomFor(Use use, std::span<const ExpertKey> keeps) const {
  if (!free_.empty()) return Room{};
  const Keeping pins(*this, keeps);
  if (idle_ <= pins.n_kept()) return std::nullopt;
  return Room{.evicts = entries_[VictimFor(use, pins).value].key};
}

std::optional<Placement> SlotTable::Adopt(ExpertKey key, std::span<const ExpertKey> keeps) {
  CHECK(!contains(key));
  const std::optional<Room> room = RoomFor(Use::kDecode, keeps);
  if (!room) return std::nullopt;
  if (room->evicts) {
    Drop(*room->evicts);
    ++stats_.evictions;
  }
  const Placement placement{
      .slot = free_.back(), .was = Placement::Was::kAbsent, .evicted = room->evicts};
  free_.pop_back();
  Occupy(placement.slot, key, Use::kDecode, 1);
  return placement;
}

std::optional<Placement> SlotTable::Recall(ExpertKey key, uint32_t uses) {
  if (contains(key) || free_.empty()) return std::nullopt;
  const SlotId slot = free_.back();
  free_.pop_back();
  Occupy(slot, key, Use::kDecode, 1);
  entries_[slot.value].uses = uses;
  return Placement{.slot = slot, .was = Placement::Was::kAbsent, .evicted = std::nullopt};
}

Placement SlotTable::Claim(ExpertKey key, SlotId slot) {
  const std::optional<SlotId> now = FindSlot(key);
  if (now == slot) return Reuse(slot, Use::kPrefetch, 1);
  if (now) Drop(key);
  Placement placement{.slot = slot, .was = Placement::Was::kAbsent, .evicted = std::nullopt};
  if (entries_[slot.value].state == State::kReady) {
    placement.evicted = entries_[slot.value].key;
    Drop(*placement.evicted);
    ++stats_.evictions;
  }
  CHECK(!contains(key) && std::erase(free_, slot) == 1);
  ++stats_.prefetches;
  Occupy(slot, key, Use::kPrefetch, 1);
  return placement;
}

// REQUIRES: no slot is free, some slot is idle.
SlotId SlotTable::VictimFor(Use use, const PinView& pins) const {
  const std::optional<SlotId> transient = TransientVictim(use, pins);
  return transient ? *transient : policy_->Victim(pins);
}

// A prefill gives up the newest transient expert (the cyclic sweep over layers comes back to the
// first layers first), decode the oldest.
std::optional<SlotId> SlotTable::TransientVictim(Use use, const PinView& pins) const {
  const auto usable = [&pins](SlotId slot) { return !pins.is_pinned(slot); };
  if (use == Use::kPrefill) {
    const auto newest = std::find_if(transient_.rbegin(), transient_.rend(), usable);
    return newest != transient_.rend() ? std::optional(*newest) : std::nullopt;
  }
  const auto oldest = std::ranges::find_if(transient_, usable);
  return oldest != transient_.end() ? std::optional(*oldest) : std::nullopt;
}

void SlotTable::Unlist(Entry& entry) {
  transient_.erase(entry.place);
  entry.transient = false;
}

void SlotTable::Empty(SlotId slot) {
  Entry& entry = entries_[slot.value];
  if (entry.transient) {
    Unlist(entry);
  } else {
    policy_->Erased(slot);
  }
  if (entry.state != State::kFailed) SetSlot(entry.key, kNoSlot);
  entry.state = State::kFree;
}

void SlotTable::Unpin(SlotId slot) {
  Entry& entry = entries_[slot.value];
  CHECK(entry.pins > 0);
  if (--entry.pins > 0) return;
  if (entry.state == State::kReady) {
    ++idle_;
  } else if (entry.state == State::kFailed) {
    Empty(slot);
    free_.push_back(slot);
  }
}

void SlotTable::Landed(SlotId slot) {
  Entry& entry = entries_[slot.value];
  CHECK(entry.state == State::kLoading);
  entry.state = State::kReady;
  if (entry.pins == 0) ++idle_;
}

void SlotTable::Failed(SlotId slot) {
  Entry& entry = entries_[slot.value];
  CHECK(entry.state == State::kLoading);
  SetSlot(entry.key, kNoSlot);
  entry.state = State::kFailed;
  if (entry.pins > 0) return;
  Empty(slot);
  free_.push_back(slot);
}

void SlotTable::Drop(ExpertKey key) {
  const std::optional<SlotId> slot = FindSlot(key);
  if (!slot || is_pinned(*slot)) return;
  --idle_;
  Empty(*slot);
  free_.push_back(*slot);
}

std::vector<ExpertKey> SlotTable::keys() const {
  std::vector<ExpertKey> keys;
  for (const uint32_t slot : slot_of_) {
    if (slot != kNoSlot) keys.push_back(entries_[slot].key);
  }
  return keys;
}

std::vector<SlotTable::Used> SlotTable::used() const {
  std::vector<Used> used;
  for (const uint32_t slot : slot_of_) {
    if (slot == kNoSlot) continue;
    const Entry& entry = entries_[slot];
    if (!entry.transient) used.push_back({.key = entry.key, .uses = entry.uses});
  }
  return used;
}

bool SlotTable::is_ready(ExpertKey key) const {
  const std::optional<SlotId> slot = FindSlot(key);
  return slot && entries_[slot->value].state == State::kReady;
}

bool SlotTable::is_pinned(SlotId slot) const {
  const Entry& entry = entries_[slot.value];
  return entry.pins > 0 || entry.state != State::kReady;
}

}  // namespace moestro
