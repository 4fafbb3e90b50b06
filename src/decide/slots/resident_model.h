// SPDX-License-Identifier: MIT
// Model of the experts that would be in memory if every read were done at once and nothing were
// prefetched: slot tables and policies as in residency, driven by plans alone. Lossy choices are
// taken against the model, so that they depend on tokens and numbers of slots and never on timing:
// a slow and a fast disk give the same text. Pure.
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
  // `tables` by pool, empty; `pool_of` gives the pool of a copy.
  ResidentModel(std::vector<SlotTable> tables, std::function<uint32_t(ExpertKey)> pool_of);

  bool contains(ExpertKey key) const { return tables_[pool_of_(key)].contains(key); }
  void BeginSequence();
  void BeginLayer(ExpertLayerId layer);
  void Predict(ExpertLayerId layer, std::span<const ExpertId> experts);  // see Policy::Predicted()
  // Passes the plan's prompt rows to the policies, then requests the plan's experts in its order.
  // They are present at once and unpinned at the end.
  void Run(const LayerPlan& plan);
  // Adds an expert that is fetched for later tokens: present from now on.
  void Fetch(ExpertKey key);
  // SlotTable::RoomFor() for an absent expert, with `keeps` as if they were pinned.
  std::optional<SlotTable::Room> RoomFor(ExpertKey key, std::span<const ExpertKey> keeps) const {
    return tables_[pool_of_(key)].RoomFor(Use::kDecode, keeps);
  }
  // A device gives up the expert: present from now on, if a slot can be had.
  void Adopt(ExpertKey key, std::span<const ExpertKey> keeps);
  // A device has the expert: absent from now on.
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
