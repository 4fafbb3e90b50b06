// SPDX-License-Identifier: MIT
#include "decide/devices/whole_slots.h"

#include <numeric>

namespace moestro {
namespace {

// [form]
std::vector<uint64_t> CountsOf(const WholeSlots::Tables& tables) {
  std::vector<uint64_t> slots;
  for (const std::optional<SlotTable>& table : tables) {
    slots.push_back(table ? table->slots() : 0);
  }
  return slots;
}

}  // namespace

// The form of a layer's experts; nullopt: they have several, or the device computes none.
std::optional<uint32_t> WholeSlots::FormOf(const Tables& tables, ExpertLayerId layer) const {
  const uint32_t form = parts_.form_of({.layer = layer, .expert = ExpertId{0}});
  if (!tables[form]) return std::nullopt;
  for (uint16_t e = 1; e < parts_.n_expert; ++e) {
    if (parts_.form_of({.layer = layer, .expert = ExpertId{e}}) != form) return std::nullopt;
  }
  return form;
}

WholeCase WholeSlots::CaseOf(const Tables& tables, std::span<const double> uses, const Cost& copy,
                             double seconds) const {
  std::vector<uint64_t> left = CountsOf(tables);
  WholeCase of{.n_layers = parts_.n_layers,
               .n_expert = parts_.n_expert,
               .n_used = parts_.n_used,
               .bytes = parts_.bytes,
               .slots = std::reduce(left.begin(), left.end()),
               .uses = uses};
  const uint64_t all = uint64_t{parts_.n_layers} * parts_.n_expert;
  if (!parts_.runs_layers || parts_.memory_slots + of.slots < all) return of;
  const double layer_seconds = parts_.n_expert * copy.Seconds(parts_.bytes);
  for (; of.most < parts_.n_layers; ++of.most) {
    const std::optional<uint32_t> form = FormOf(tables, LayerOf(of.most));
    if (!form || left[*form] < parts_.n_expert || (of.most + 1) * layer_seconds > seconds) break;
    left[*form] -= parts_.n_expert;
  }
  return of;
}

uint64_t WholeSlots::CopiesFor(const Tables& tables, const WholeChoice& choice,
                               std::span<const ExpertKey> popular,
                               const std::function<bool(ExpertKey)>& is_on_device) const {
  std::vector<uint64_t> left = CountsOf(tables);
  uint64_t copies = 0;
  for (uint32_t i = 0; i < choice.layers; ++i) {
    left[*FormOf(tables, LayerOf(i))] -= parts_.n_expert;
    if (!keeps(LayerOf(i))) copies += parts_.n_expert;
  }
  for (const ExpertKey key : popular) {
    uint64_t& slots = left[parts_.form_of(key)];
    if (key.layer.value + choice.layers >= parts_.n_layers || slots == 0) continue;
    --slots;
    if (!is_on_device(key)) ++copies;
  }
  return copies;
}

std::vector<ExpertKey> WholeSlots::AllIn(std::vector<uint32_t> room) const {
  std::vector<ExpertKey> all;
  for (uint16_t l = 0; l < parts_.n_layers; ++l) {
    for (uint16_t e = 0; e < parts_.n_expert; ++e) {
      const ExpertKey key{.layer = ExpertLayerId{l}, .expert = ExpertId{e}};
      uint32_t& left = room[parts_.form_of(key)];
      if (left == 0) return {};
      --left;
      all.push_back(key);
    }
  }
  return all;
}

bool WholeSlots::HasAll(const Tables& tables, ExpertLayerId layer) const {
  const uint32_t form = parts_.form_of({.layer = layer, .expert = ExpertId{0}});
  for (uint16_t e = 0; tables[form] && e < parts_.n_expert; ++e) {
    const ExpertKey key{.layer = layer, .expert = ExpertId{e}};
    if (parts_.form_of(key) != form || !tables[form]->is_ready(key)) return false;
  }
  return tables[form].has_value();
}

std::vector<SlotId> WholeSlots::SlotsOf(const Tables& tables, ExpertLayerId layer) const {
  const SlotTable& table = *tables[*FormOf(tables, layer)];
  std::vector<SlotId> slots;
  for (uint16_t e = 0; e < parts_.n_expert; ++e) {
    slots.push_back(table.SlotOf({.layer = layer, .expert = ExpertId{e}}));
  }
  return slots;
}

// The first group of slots of a form is the last layer's, so that more layers later need no copies
// of these.
std::vector<WholeSlots::Claimed> WholeSlots::Claim(Tables& tables, const WholeChoice& choice) {
  for (uint32_t form = 0; form < kept_.size(); ++form) {
    for (uint32_t s = 0; s < kept_[form]; ++s) tables[form]->Unpin(SlotId{s});
  }
  kept_.assign(tables.size(), 0);
  division_ = choice;
  std::vector<Claimed> copied;
  for (uint32_t i = 0; i < choice.layers; ++i) {
    const uint32_t form = *FormOf(tables, LayerOf(i));
    SlotTable& table = *tables[form];
    for (uint16_t e = 0; e < parts_.n_expert; ++e) {
      const ExpertKey key{.layer = LayerOf(i), .expert = ExpertId{e}};
      const SlotId slot{kept_[form]++};
      const bool was_ready = table.Claim(key, slot).was == Placement::Was::kReady;
      if (was_ready) continue;
      table.Request(key, Use::kPrefetch);
      copied.push_back({.key = key, .slot = slot});
    }
  }
  return copied;
}

}  // namespace moestro
