// SPDX-License-Identifier: MIT
// Who would be in memory if every read were done at once and nothing were prefetched: slot tables
// and policies as in residency, driven by plans alone. Lossy choices are taken against it, so that
// they depend on tokens and numbers of slots and never on timing: the same text is made on a slow
// and on a fast disk. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/slots/slot_table.h"

namespace moestro {

class ResidentModel {
 public:
  // `tables` by pool, empty; `pool_of` says which one a copy goes to.
  ResidentModel(std::vector<SlotTable> tables, std::function<uint32_t(ExpertKey)> pool_of);

  bool contains(ExpertKey key) const { return tables_[pool_of_(key)].contains(key); }
  void BeginSequence();
  void BeginLayer(ExpertLayerId layer);
  void Predict(ExpertLayerId layer, std::span<const ExpertId> experts);  // see Policy::Predicted()
  // The experts of a plan are asked for in its order, are there at once and are let go. Learns what
  // the plan says of a prompt first.
  void Run(const LayerPlan& plan);
  // An expert that is fetched for later tokens: present from now on.
  void Fetch(ExpertKey key);
  // See SlotTable: of an expert that is not there, with `keeps` as if they were pinned.
  std::optional<SlotTable::Room> RoomFor(ExpertKey key, std::span<const ExpertKey> keeps) const {
    return tables_[pool_of_(key)].RoomFor(Use::kDecode, keeps);
  }
  // A device gives it up: present from now on, if there is room.
  void Adopt(ExpertKey key, std::span<const ExpertKey> keeps);
  // A device has it: absent from now on.
  void Drop(ExpertKey key) { tables_[pool_of_(key)].Drop(key); }

 private:
  void Request(ExpertKey key, Use use, uint32_t rows);
  void LetGo();

  std::vector<SlotTable> tables_;
  std::function<uint32_t(ExpertKey)> pool_of_;
  struct Held {
    uint32_t pool = 0;
    SlotId slot;
  };
  std::vector<Held> held_;  // oldest first
};

}  // namespace moestro
