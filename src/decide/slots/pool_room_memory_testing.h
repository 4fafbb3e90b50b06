// SPDX-License-Identifier: MIT
// For pool_room_test.cc: memory whose reads end when the test says so, and leases of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/slots/pool_room_sizes_testing.h"
#include "decide/slots/slot_table.h"

namespace moestro {

// Residency without bytes: reads end when the test says so.
class Memory {
 public:
  Memory(const Sizes& sizes, Dice& dice) : sizes_(sizes), dice_(dice) {
    for (const uint64_t n : sizes.slots) tables_.push_back(Table(sizes, n));
    tables_.push_back(Table(sizes, 1 + sizes.device_slots.size()));  // for staging
  }

  struct Pin {
    uint32_t pool = 0;
    SlotId slot;
    ExpertKey key;
  };
  bool contains(ExpertKey key) const { return table(key).contains(key); }
  bool is_ready(const Pin& pin) const { return tables_[pin.pool].is_ready(pin.key); }
  std::optional<Pin> TryAcquire(ExpertKey key, Use use) {
    return PinIn(sizes_.pool_of(key), key, use);
  }
  std::optional<Pin> TryStage(ExpertKey key, Use use) {
    return contains(key) ? TryAcquire(key, use) : PinIn(staging(), key, use);
  }
  void Unpin(const Pin& pin) {
    tables_[pin.pool].Unpin(pin.slot);
    if (pin.pool == staging()) tables_[pin.pool].Drop(pin.key);
  }
  void Adopt(ExpertKey key, std::span<const ExpertKey> keeps) {
    if (contains(key)) return;
    const std::optional<Placement> placed = table(key).Adopt(key, keeps);
    if (!placed) return;
    table(key).Landed(placed->slot);
    table(key).Unpin(placed->slot);
  }
  std::optional<SlotTable::Room> RoomFor(ExpertKey key, std::span<const ExpertKey> keeps) const {
    return table(key).RoomFor(Use::kDecode, keeps);
  }
  void Drop(ExpertKey key) { table(key).Drop(key); }
  bool idle() const { return loading_.empty(); }
  void LandOne() {
    const auto one = loading_.begin() + static_cast<std::ptrdiff_t>(dice_.Below(loading_.size()));
    tables_[one->pool].Landed(one->slot);
    loading_.erase(one);
  }
  void Drain() {
    while (!idle()) LandOne();
  }

 private:
  uint32_t staging() const { return static_cast<uint32_t>(tables_.size() - 1); }
  SlotTable& table(ExpertKey key) { return tables_[sizes_.pool_of(key)]; }
  const SlotTable& table(ExpertKey key) const { return tables_[sizes_.pool_of(key)]; }
  std::optional<Pin> PinIn(uint32_t pool, ExpertKey key, Use use) {
    const std::optional<Placement> placed = tables_[pool].Request(key, use);
    if (!placed) return std::nullopt;
    const Pin pin{.pool = pool, .slot = placed->slot, .key = key};
    if (placed->was == Placement::Was::kAbsent) loading_.push_back(pin);
    return pin;
  }

  const Sizes& sizes_;
  Dice& dice_;
  std::vector<SlotTable> tables_;
  std::vector<Pin> loading_;
};

// LeaseStream over that memory.
class Stream {
 public:
  struct Wanted {
    ExpertKey key;
    Use use = Use::kPrefill;
    bool is_staged = false;
  };
  Stream(Memory& memory, std::vector<Wanted> wanted)
      : memory_(&memory), wanted_(std::move(wanted)), pins_(wanted_.size()) {}
  Stream(Stream&& other) noexcept = default;
  Stream& operator=(Stream&& other) noexcept {
    LetAllGo();
    memory_ = other.memory_;
    wanted_ = std::move(other.wanted_);
    pins_ = std::exchange(other.pins_, {});
    next_ = other.next_;
    return *this;
  }
  ~Stream() { LetAllGo(); }

  void Advance() {
    for (; next_ < wanted_.size(); ++next_) {
      const Wanted& w = wanted_[next_];
      pins_[next_] =
          w.is_staged ? memory_->TryStage(w.key, w.use) : memory_->TryAcquire(w.key, w.use);
      if (!pins_[next_]) return;
    }
  }
  bool all_taken() const { return next_ == wanted_.size(); }
  bool is_done() const {
    return all_taken() && std::ranges::none_of(pins_, [](const auto& pin) { return !!pin; });
  }
  // Of those whose bytes are there, the first; false: there is none.
  bool LetOneGo() {
    for (std::optional<Memory::Pin>& pin : pins_) {
      if (!pin || !memory_->is_ready(*pin)) continue;
      memory_->Unpin(*pin);
      pin.reset();
      return true;
    }
    return false;
  }
  void LetAllGo() {
    for (std::optional<Memory::Pin>& pin : pins_) {
      if (pin) memory_->Unpin(*pin);
      pin.reset();
    }
  }

 private:
  Memory* memory_;
  std::vector<Wanted> wanted_;
  std::vector<std::optional<Memory::Pin>> pins_;
  size_t next_ = 0;
};

}  // namespace moestro
