// SPDX-License-Identifier: MIT
// Limits of what can be reached: Belady's rule for policies, a predictor that is always right, the
// fewest reads for a log of requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "decide/ahead/predictors.h"
#include "decide/slots/policy.h"
#include "trace/trace.h"

namespace moestro {

// Belady's rule: evict the expert that is needed again last. The policy reads the trace ahead, so
// its hit rate is the limit for other policies. Only the simulator has it. Source: L. A. Belady, "A
// study of replacement algorithms for a virtual-storage computer", 1966.

// LayerBegun() steps through the decode tokens of a trace in order. The trace must outlive this.
class BeladyPolicy final : public Policy {
 public:
  explicit BeladyPolicy(const Trace& trace);

  void Reset(const PolicyShape& shape) override;
  void LayerBegun(ExpertLayerId layer) override;
  void Inserted(SlotId slot, ExpertKey key, uint32_t rows) override;
  void Touched(SlotId slot, uint32_t rows) override;
  void Erased(SlotId slot) override;
  SlotId Victim(const PinView& pins) const override;

 private:
  static constexpr uint32_t kNever = ~0U;
  using Need = std::pair<uint32_t, uint32_t>;  // group of the next use, slot

  uint32_t NextUse(ExpertKey key) const;

  const Trace& trace_;
  std::vector<size_t> tokens_;          // the trace's decode tokens
  std::vector<uint32_t> next_use_;      // [group][K]: group of the same expert's next use
  std::vector<ExpertKey> keys_;         // [slot]
  std::vector<uint32_t> needed_again_;  // [slot]
  std::set<Need> needs_;
  ExpertLayers layers_;  // layers that decode tokens go through
  size_t group_ = 0;     // decode token * layers_.size() + layer - layers_.begin
  bool has_begun_ = false;
};

// A predictor that is always right, since it reads the trace ahead: the limit for other predictors.
// Only the simulator has it.

// Observe() steps through the decode tokens of a trace in order. The trace must outlive this.
class OraclePredictor final : public Predictor {
 public:
  explicit OraclePredictor(const Trace& trace) : trace_(trace) {}

  void Reset(const PredictorShape& shape) override {
    next_ = 0;
    union_.Reset(shape.moe.n_expert);
  }
  void Observe(const Seen& seen) override {
    layer_ = seen.layer.value;
    if (layer_ > trace_.info().shape().n_encoder) return;
    tokens_.clear();
    while (tokens_.size() < seen.rows) {
      if (trace_.phase(next_) == Phase::kDecode) tokens_.push_back(next_);
      ++next_;
    }
  }
  std::span<const ExpertId> Predict(uint32_t distance) override {
    rows_.clear();
    for (const size_t token : tokens_) {
      rows_.append_range(trace_.experts(token, layer_ + distance));
    }
    return union_.ByRank(rows_, trace_.info().shape().n_used);
  }

 private:
  const Trace& trace_;
  size_t next_ = 0;             // the search for the next decode token begins here
  std::vector<size_t> tokens_;  // decode tokens of the step
  size_t layer_ = 0;
  std::vector<ExpertId> rows_;  // scratch: [row][K]
  ExpertUnion union_;           // scratch
};

// Logs a run's requests for experts of one kind of slots, and computes the fewest reads for them:
// by Belady's rule on the whole log, from the experts in the slots when the log
// began. In this count a read expert need not take a slot, and a layer may request experts in any
// order. So no policy and no prefetch needs fewer reads.

class RequestLog {
 public:
  // Takes memory for `capacity` requests at once and keeps no more requests.
  explicit RequestLog(size_t capacity) { requests_.reserve(capacity); }
  // Bytes of a log with this number of requests and of different experts, and of FewestReads().
  static uint64_t BytesFor(uint64_t requests, uint64_t experts);

  // Adds the experts that one layer of a step needs, in any order, each once. REQUIRES: numbers
  // below 2^31.
  void Add(std::span<const uint32_t> experts);
  // False after more requests than the capacity.
  bool is_complete() const { return is_complete_; }

  // REQUIRES: is_complete(); slots > 0; `present` are different experts, no more than slots.
  uint64_t FewestReads(uint64_t slots, std::span<const uint32_t> present) const;

 private:
  static constexpr uint32_t kBegins = 1U << 31;  // the first request of a layer

  uint32_t expert(size_t request) const { return requests_[request] & ~kBegins; }

  std::vector<uint32_t> requests_;
  bool is_complete_ = true;
};

}  // namespace moestro
