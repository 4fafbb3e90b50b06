// SPDX-License-Identifier: MIT
// A policy over a LayerRanking. Derived policies share the bookkeeping; they differ in the rank of
// an expert and in the score that a layer gives to a rank.
#pragma once

#include "core/ids.h"
#include "decide/slots/policies/expert_table.h"
#include "decide/slots/policies/layer_ranking.h"
#include "decide/slots/policy.h"

namespace moestro {

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
