// SPDX-License-Identifier: MIT
#include "decide/slots/policies/ranked_policy.h"

namespace moestro {

void LayerRanking::Reset(size_t slots, uint32_t layers) {
  entries_.assign(slots, Entry{});
  layers_.assign(layers, Layer{});
  for (Layer& layer : layers_) layer.slots.reserve(slots);
  clock_ = 0;
}

void LayerRanking::Add(SlotId slot, ExpertLayerId layer, double rank) {
  Layer& list = layers_[layer.value];
  entries_[slot.value] = {
      .layer = layer, .rank = rank, .set_at = ++clock_, .position = list.slots.size()};
  list.slots.push_back(slot);
  if (list.lowest && is_lower(slot, *list.lowest)) list.lowest = slot;
}

void LayerRanking::Set(SlotId slot, double rank) {
  Entry& entry = entries_[slot.value];
  entry.rank = rank;
  entry.set_at = ++clock_;
  Layer& list = layers_[entry.layer.value];
  if (list.lowest == slot) {
    list.lowest.reset();
  } else if (list.lowest && is_lower(slot, *list.lowest)) {
    list.lowest = slot;
  }
}

void LayerRanking::Defer(ExpertLayerId layer) {
  Layer& list = layers_[layer.value];
  list.deferred = list.slots.size();
  list.deferred_at = clock_;
  list.lowest.reset();
  clock_ += list.slots.size();
}

void LayerRanking::Remove(SlotId slot) {
  const Entry& entry = entries_[slot.value];
  Layer& list = layers_[entry.layer.value];
  CHECK(list.deferred == 0);
  const SlotId last = list.slots.back();
  list.slots[entry.position] = last;
  entries_[last.value].position = entry.position;
  list.slots.pop_back();
  if (list.lowest == slot) list.lowest.reset();
}

bool LayerRanking::is_lower(SlotId a, SlotId b) const {
  const double rank_a = entries_[a.value].rank;
  const double rank_b = entries_[b.value].rank;
  return rank_a < rank_b || (rank_a == rank_b && is_older(a, b));
}

std::optional<SlotId> LayerRanking::LowestOf(uint32_t layer, const PinView& pins) const {
  const Layer& list = layers_[layer];
  CHECK(list.deferred == 0);
  if (!list.lowest) {
    for (const SlotId slot : list.slots) {
      if (!list.lowest || is_lower(slot, *list.lowest)) list.lowest = slot;
    }
  }
  if (!list.lowest || !pins.is_pinned(*list.lowest)) return list.lowest;
  std::optional<SlotId> free;
  for (const SlotId slot : list.slots) {
    if (!pins.is_pinned(slot) && (!free || is_lower(slot, *free))) free = slot;
  }
  return free;
}

}  // namespace moestro
