// SPDX-License-Identifier: MIT
#include "sim/belady.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace moestro {

BeladyPolicy::BeladyPolicy(const Trace& trace)
    : trace_(trace), layers_(trace.info().shape().decode_layers()) {
  const TraceInfo& info = trace.info();
  for (size_t t = 0; t < trace.tokens(); ++t) {
    if (trace.phase(t) == Phase::kDecode) tokens_.push_back(t);
  }
  next_use_.resize(tokens_.size() * layers_.size() * info.shape().n_used);
  std::vector<uint32_t> next(size_t{info.shape().n_layer} * info.shape().n_expert, kNever);
  for (size_t group = tokens_.size() * layers_.size(); group > 0;) {
    --group;
    const size_t layer = layers_.begin + group % layers_.size();
    const auto experts = trace.experts(tokens_[group / layers_.size()], layer);
    for (size_t k = 0; k < experts.size(); ++k) {
      uint32_t& its_next = next[layer * info.shape().n_expert + experts[k].value];
      next_use_[group * info.shape().n_used + k] = its_next;
      its_next = static_cast<uint32_t>(group);
    }
  }
}

void BeladyPolicy::Reset(const PolicyShape& shape) {
  keys_.assign(shape.slots, ExpertKey{});
  needed_again_.assign(shape.slots, kNever);
  needs_.clear();
  group_ = 0;
  has_begun_ = false;
}

void BeladyPolicy::LayerBegun(ExpertLayerId layer) {
  if (has_begun_) ++group_;
  has_begun_ = true;
  CHECK(layers_.begin + group_ % layers_.size() == layer.value);
}

uint32_t BeladyPolicy::NextUse(ExpertKey key) const {
  const TraceInfo& info = trace_.info();
  const auto experts = trace_.experts(tokens_[group_ / layers_.size()], key.layer.value);
  const auto found = std::ranges::find(experts, key.expert);
  CHECK(found != experts.end());
  return next_use_[group_ * info.shape().n_used + static_cast<size_t>(found - experts.begin())];
}

void BeladyPolicy::Inserted(SlotId slot, ExpertKey key, uint32_t /*rows*/) {
  keys_[slot.value] = key;
  needed_again_[slot.value] = NextUse(key);
  needs_.emplace(needed_again_[slot.value], slot.value);
}

void BeladyPolicy::Touched(SlotId slot, uint32_t rows) {
  Erased(slot);
  Inserted(slot, keys_[slot.value], rows);
}

void BeladyPolicy::Erased(SlotId slot) { needs_.erase({needed_again_[slot.value], slot.value}); }

SlotId BeladyPolicy::Victim(const PinView& pins) const {
  const auto victim = std::find_if(needs_.rbegin(), needs_.rend(), [&](const Need& need) {
    return !pins.is_pinned(SlotId{need.second});
  });
  CHECK(victim != needs_.rend());
  return SlotId{victim->second};
}

}  // namespace moestro
