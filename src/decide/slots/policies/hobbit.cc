// SPDX-License-Identifier: MIT
// HOBBIT's sequence-level priority:
//   w_lru R/T + w_lfu F/T + w_lhu H/T + w_fld (1 - ((l_t - l_i + l_n) mod l_n) / l_n)
// with T tokens so far in the sequence, R the token of the last use, F uses, H uses in high
// precision, l_t the expert's layer, l_i the current one, l_n layers. R, F and H begin anew with
// each sequence.
#include <algorithm>

#include "decide/slots/policies/policies.h"
#include "decide/slots/policies/ranked_policy.h"

namespace moestro {
namespace {

struct Weights {
  double lru = 0.0;
  double lfu = 0.0;
  double lhu = 0.0;
  double fld = 0.0;
};

class HobbitPolicy final : public RankedPolicy {
 public:
  explicit HobbitPolicy(const Weights& weights) : weights_(weights) {}

  void SequenceBegun() override {
    token_ = 0;
    for (History& history : history_.all()) history = {};
    ClearRanks();
  }
  void LayerBegun(ExpertLayerId layer) override {
    RankedPolicy::LayerBegun(layer);
    if (BeginsStep(layer)) ++token_;
  }
  void OtherCopyUsed(ExpertKey ran, uint32_t rows) override { Note(ran, rows); }
  SlotId Victim(const PinView& pins) const override {
    const double tokens = static_cast<double>(std::max<uint64_t>(token_, 1));
    const uint32_t n = step_layers();
    return ranking_.Lowest(pins, [&](ExpertLayerId layer, double rank) {
      const double ahead = LayersAhead(layer);
      return rank / tokens + weights_.fld * (1.0 - ahead / n);
    });
  }

 private:
  struct History {
    double uses = 0.0;
    double high_uses = 0.0;
  };
  void Forget(const PolicyShape& shape) override {
    history_.Reset(shape.layers, shape.experts);
    token_ = 0;
  }
  const History& Note(ExpertKey key, uint32_t rows) {
    History& history = history_[key];
    history.uses += rows;
    if (key.copy == 0) history.high_uses += rows;
    return history;
  }
  double Used(ExpertKey key, uint32_t rows) override {
    const History& history = Note(key, rows);
    return weights_.lru * static_cast<double>(token_) + weights_.lfu * history.uses +
           weights_.lhu * history.high_uses;
  }

  Weights weights_;
  ExpertTable<History> history_;
  uint64_t token_ = 0;
};

}  // namespace

// The weights count by their shares; all zero counts as equal weights.
std::unique_ptr<Policy> MakeHobbit(const PolicyValues& values) {
  const auto of = [&](const char* name) { return values.find(name)->second; };
  Weights w{of("w_lru"), of("w_lfu"), of("w_lhu"), of("w_fld")};
  const double sum = w.lru + w.lfu + w.lhu + w.fld;
  if (sum > 0.0) {
    w = {.lru = w.lru / sum, .lfu = w.lfu / sum, .lhu = w.lhu / sum, .fld = w.fld / sum};
  }
  return std::make_unique<HobbitPolicy>(w);
}

}  // namespace moestro
