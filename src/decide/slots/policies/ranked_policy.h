// SPDX-License-Identifier: MIT
// A policy over a LayerRanking. Derived policies share the bookkeeping; they differ in the rank of
// an expert and in the score that a layer gives to a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "decide/slots/policy.h"

namespace moestro {

// A value for every expert of every layer, resident or not: a policy's memory of uses.

template <class Value>
class ExpertTable {
 public:
  void Reset(uint32_t layers, uint32_t experts) {
    experts_ = experts;
    values_.assign(size_t{layers} * experts, Value{});
  }
  Value& operator[](ExpertKey key) {
    return values_[size_t{key.layer.value} * experts_ + key.expert.value];
  }
  const Value& operator[](ExpertKey key) const {
    return values_[size_t{key.layer.value} * experts_ + key.expert.value];
  }
  std::span<const Value> of(ExpertLayerId layer) const {
    return std::span(values_).subspan(size_t{layer.value} * experts_, experts_);
  }
  std::span<Value> of(ExpertLayerId layer) {
    return std::span(values_).subspan(size_t{layer.value} * experts_, experts_);
  }
  std::span<Value> all() { return values_; }

 private:
  uint32_t experts_ = 0;
  std::vector<Value> values_;
};

// The occupied slots of every layer, each with a rank; finds the slot with the lowest score when
// the score depends on the rank and on the layer. Most policies need such a ranking: their scores
// change with the layer clock for whole layers at once, and for single slots only when the slots
// are used.
//
// A layer's lowest slot is kept until the layer changes, so that a victim costs one comparison for
// every layer and a walk over the few layers that changed. Ranks that change for a whole layer can
// wait until a victim is needed: Defer() keeps their place in time, Settle() makes up for them.

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

class RankedPolicy : public Policy {
 public:
  void Reset(const PolicyShape& shape) override {
    keys_.assign(shape.slots, ExpertKey{});
    ranking_.Reset(shape.slots, shape.layers);
    first_ = shape.first_layer;
    now_ = ExpertLayerId{static_cast<uint16_t>(first_)};
    Forget(shape);
  }
  void LayerBegun(ExpertLayerId layer) override { now_ = layer; }
  void Inserted(SlotId slot, ExpertKey key, uint32_t rows) override {
    keys_[slot.value] = key;
    ranking_.Add(slot, key.layer, Used(key, rows));
  }
  void Touched(SlotId slot, uint32_t rows) override {
    ranking_.Set(slot, Used(keys_[slot.value], rows));
  }
  void Erased(SlotId slot) override { ranking_.Remove(slot); }

 protected:
  // Empties the history, for this shape.
  virtual void Forget(const PolicyShape& shape) = 0;
  // Notes a use and returns the expert's rank: the higher, the longer it stays.
  virtual double Used(ExpertKey key, uint32_t rows) = 0;

  // Sets the ranks of all residents to 0, with their history forgotten.
  void ClearRanks() {
    for (uint32_t l = 0; l < ranking_.layers(); ++l) {
      for (const SlotId slot : ranking_.slots_of(ExpertLayerId{static_cast<uint16_t>(l)})) {
        ranking_.Set(slot, 0.0);
      }
    }
  }
  // Layers of a decode step, at least one.
  uint32_t step_layers() const {
    return ranking_.layers() > first_ ? ranking_.layers() - first_ : 1;
  }
  bool BeginsStep(ExpertLayerId layer) const { return layer.value == first_; }
  // Layers until `layer` runs: 0 for the running layer, up to step_layers() - 1; an encoder's layer
  // is farther away than all others.
  uint32_t LayersAhead(ExpertLayerId layer) const {
    const uint32_t n = step_layers();
    return layer.value < first_ ? n : (layer.value + n - now_.value) % n;
  }
  // Layers until `layer` runs again: 1 to step_layers(), because the running layer has had its
  // turn.
  uint32_t LayersUntil(ExpertLayerId layer) const {
    const uint32_t ahead = LayersAhead(layer);
    return ahead == 0 ? step_layers() : ahead;
  }
  ExpertLayerId now() const { return now_; }
  const ExpertKey& key_of(SlotId slot) const { return keys_[slot.value]; }

  // Shared with the kinds on purpose; mutable, because a kind may settle ranks as late as when a
  // victim is needed.
  mutable LayerRanking ranking_;  // NOLINT

 private:
  std::vector<ExpertKey> keys_;
  uint32_t first_ = 0;  // layer of a decode step
  ExpertLayerId now_{};
};

}  // namespace moestro
