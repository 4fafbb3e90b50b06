// SPDX-License-Identifier: MIT
// Slots of the first device for layers that the device computes whole. The experts of such a layer
// lie one behind the other and keep their slots, so that graphs take them as the layer's own
// tensor. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "decide/devices/latency_model.h"
#include "decide/devices/whole_planner.h"
#include "decide/slots/slot_table.h"

namespace moestro {

class WholeSlots {
 public:
  struct Parts {
    uint32_t n_layers = 0;  // with experts
    uint32_t n_expert = 0;  // of a layer
    uint32_t n_used = 0;    // of these by a row
    uint64_t bytes = 0;     // of an expert
    std::function<uint32_t(ExpertKey)> form_of;
    uint64_t memory_slots = 0;
    bool runs_layers = false;  // the device computes layers whole
  };
  // Slots of the first device by form; nullopt: the device computes no such expert.
  using Tables = std::vector<std::optional<SlotTable>>;

  explicit WholeSlots(Parts parts) : parts_(std::move(parts)) {}

  // The case of ChooseWhole(), with copies of at most so many seconds. No layer may be whole if
  // memory does not hold the experts that the device lacks.
  WholeCase CaseOf(const Tables& tables, std::span<const double> uses, const Cost& copy,
                   double seconds) const;
  // Copies to the device that a division takes, with the most used experts `popular`. Experts of
  // further whole layers move to slots of their own even if they are on the device.
  uint64_t CopiesFor(const Tables& tables, const WholeChoice& choice,
                     std::span<const ExpertKey> popular,
                     const std::function<bool(ExpertKey)>& is_on_device) const;

  // All experts of the model in their order; empty: `room`, free slots by form, does not hold them.
  std::vector<ExpertKey> AllIn(std::vector<uint32_t> room) const;
  // Whether the device has all experts of the layer, all of one form.
  bool HasAll(const Tables& tables, ExpertLayerId layer) const;
  // [expert] REQUIRES: HasAll().
  std::vector<SlotId> SlotsOf(const Tables& tables, ExpertLayerId layer) const;

  // Gives the layers of `choice` their slots in place of the layers that had some; each slot is
  // pinned once until the next Claim(). The experts that are to be copied there are pinned once
  // more. REQUIRES: no other code pins slots.
  struct Claimed {
    ExpertKey key;
    SlotId slot;
  };
  std::vector<Claimed> Claim(Tables& tables, const WholeChoice& choice);
  bool keeps(ExpertLayerId layer) const {
    return division_.layers > 0 && layer.value + division_.layers >= parts_.n_layers;
  }
  // Whether a whole layer keeps the slot.
  bool keeps(uint32_t form, SlotId slot) const {
    return form < kept_.size() && slot.value < kept_[form];
  }
  // The last choice.
  const WholeChoice& division() const { return division_; }

 private:
  std::optional<uint32_t> FormOf(const Tables& tables, ExpertLayerId layer) const;
  // The layer that is the i-th to be whole: the model's last is the first.
  ExpertLayerId LayerOf(uint32_t i) const {
    return ExpertLayerId{static_cast<uint16_t>(parts_.n_layers - 1 - i)};
  }

  Parts parts_;
  WholeChoice division_;
  std::vector<uint32_t> kept_;  // [form] the first slots, each pinned once
};

}  // namespace moestro
