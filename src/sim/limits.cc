// SPDX-License-Identifier: MIT
#include "sim/limits.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/result.h"

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

namespace {

constexpr uint32_t kNoRequest = ~0U;

// Experts in memory, and the request that needs each of them next.
class NeededLast {
 public:
  NeededLast(uint64_t slots, size_t experts) : slots_(slots), next_(experts), is_here_(experts) {}

  // Puts the expert into memory. Returns whether it was there before.
  bool Use(uint32_t expert, uint32_t next) {
    const bool was_here = is_here_[expert];
    if (was_here) needs_.erase({next_[expert], expert});
    is_here_[expert] = true;
    next_[expert] = next;
    needs_.emplace(next, expert);
    return was_here;
  }
  // The expert that is needed last leaves, as far as there are more than slots.
  void Trim() {
    while (needs_.size() > slots_) {
      const auto last = std::prev(needs_.end());
      is_here_[last->second] = false;
      needs_.erase(last);
    }
  }

 private:
  uint64_t slots_;
  std::vector<uint32_t> next_;  // [expert] in memory: the request that needs it next
  std::vector<bool> is_here_;   // [expert]
  std::set<std::pair<uint32_t, uint32_t>> needs_;  // next request, expert
};

}  // namespace

uint64_t RequestLog::BytesFor(uint64_t requests, uint64_t experts) {
  // Bytes of each request and of its next one; of an expert, a node of the set and its two entries.
  constexpr uint64_t kPerExpert = 80;
  return requests * 2 * sizeof(uint32_t) + experts * kPerExpert;
}

void RequestLog::Add(std::span<const uint32_t> experts) {
  is_complete_ = is_complete_ && requests_.size() + experts.size() <= requests_.capacity();
  if (!is_complete_) return;
  for (const uint32_t expert : experts) {
    CHECK(expert < kBegins);
    requests_.push_back(expert == experts.front() ? expert | kBegins : expert);
  }
}

uint64_t RequestLog::FewestReads(uint64_t slots, std::span<const uint32_t> present) const {
  CHECK(is_complete_ && slots > 0 && present.size() <= slots);
  uint32_t most = present.empty() ? 0 : std::ranges::max(present);
  for (size_t i = 0; i < requests_.size(); ++i) most = std::max(most, expert(i));
  std::vector<uint32_t> first(size_t{most} + 1, kNoRequest);  // [expert]
  std::vector<uint32_t> next(requests_.size());  // [request]: the next request for the same expert
  for (size_t i = requests_.size(); i-- > 0;) {
    next[i] = std::exchange(first[expert(i)], static_cast<uint32_t>(i));
  }
  NeededLast here(slots, first.size());
  for (const uint32_t e : present) here.Use(e, first[e]);
  uint64_t reads = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] >= kBegins) here.Trim();  // the layer before is done
    if (!here.Use(expert(i), next[i])) ++reads;
  }
  return reads;
}

}  // namespace moestro
