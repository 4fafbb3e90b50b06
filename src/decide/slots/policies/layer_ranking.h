// SPDX-License-Identifier: MIT
// The occupied slots of every layer, each with a rank; finds the slot with the lowest score when
// the score depends on the rank and on the layer. Most policies need such a ranking: their scores
// change with the layer clock for whole layers at once, and for single slots only when the slots
// are used.
//
// A layer's lowest slot is kept until the layer changes, so that a victim costs one comparison for
// every layer and a walk over the few layers that changed. Ranks that change for a whole layer can
// wait until a victim is needed: Defer() keeps their place in time, Settle() makes up for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/check.h"
#include "core/ids.h"
#include "decide/slots/policy.h"

namespace moestro {

class LayerRanking {
 public:
  void Reset(size_t slots, uint32_t layers);
  // Equal ranks leave in the order in which they were last set.
  void Add(SlotId slot, ExpertLayerId layer, double rank);
  void Set(SlotId slot, double rank);
  // REQUIRES: the slot's layer is settled.
  void Remove(SlotId slot);
  // Gives every slot of the layer a new rank at this moment, whose value is computed later. An
  // earlier Defer() is void, and ranks set or added afterwards count as newer.
  void Defer(ExpertLayerId layer);
  bool is_settled(ExpertLayerId layer) const { return layers_[layer.value].deferred == 0; }
  // Computes the deferred ranks by `rank_of(slot)`.
  template <class RankOf>
  void Settle(ExpertLayerId layer, RankOf rank_of) {
    Layer& list = layers_[layer.value];
    for (size_t i = 0; i < list.deferred; ++i) {
      const SlotId slot = list.slots[i];
      Entry& entry = entries_[slot.value];
      if (entry.set_at > list.deferred_at) continue;  // set since
      entry.rank = rank_of(slot);
      entry.set_at = list.deferred_at + i + 1;
    }
    list.deferred = 0;
  }

  ExpertLayerId layer_of(SlotId slot) const { return entries_[slot.value].layer; }
  double rank_of(SlotId slot) const { return entries_[slot.value].rank; }
  const std::vector<SlotId>& slots_of(ExpertLayerId layer) const {
    return layers_[layer.value].slots;
  }
  uint32_t layers() const { return static_cast<uint32_t>(layers_.size()); }

  // The slot that is not pinned and has the lowest score(layer, rank); ties leave oldest first.
  // REQUIRES: every layer is settled; score does not fall when the rank rises; some slot is not
  // pinned.
  template <class Score>
  SlotId Lowest(const PinView& pins, Score score) const {
    std::optional<SlotId> lowest;
    double lowest_score = 0.0;
    for (uint32_t l = 0; l < layers_.size(); ++l) {
      const std::optional<SlotId> candidate = LowestOf(l, pins);
      if (!candidate) continue;
      const double its_score =
          score(ExpertLayerId{static_cast<uint16_t>(l)}, entries_[candidate->value].rank);
      if (lowest && (its_score > lowest_score ||
                     (its_score == lowest_score && is_older(*lowest, *candidate)))) {
        continue;
      }
      lowest = candidate;
      lowest_score = its_score;
    }
    CHECK(lowest.has_value());
    return *lowest;
  }

 private:
  struct Entry {
    ExpertLayerId layer{};
    double rank = 0.0;
    uint64_t set_at = 0;
    size_t position = 0;  // position in its layer's list
  };
  struct Layer {
    std::vector<SlotId> slots;
    mutable std::optional<SlotId> lowest;  // nullopt: look again
    // Number of slots at the front whose ranks wait to be settled, and the time from which the
    // ranks count.
    size_t deferred = 0;
    uint64_t deferred_at = 0;
  };

  bool is_older(SlotId a, SlotId b) const {
    return entries_[a.value].set_at < entries_[b.value].set_at;
  }
  bool is_lower(SlotId a, SlotId b) const;
  std::optional<SlotId> LowestOf(uint32_t layer, const PinView& pins) const;

  std::vector<Entry> entries_;
  std::vector<Layer> layers_;
  uint64_t clock_ = 0;
};

}  // namespace moestro
