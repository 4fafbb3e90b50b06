// SPDX-License-Identifier: MIT
#include "decide/slots/policies/policies.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "decide/slots/policies/ranked_policy.h"

namespace moestro {

void LruPolicy::Reset(const PolicyShape& shape) {
  links_.assign(shape.slots + 1, Link{});
  links_[shape.slots] = {.previous = sentinel(), .next = sentinel()};
}

void LruPolicy::Inserted(SlotId slot, ExpertKey /*key*/, uint32_t /*rows*/) {
  LinkFirst(slot.value);
}

void LruPolicy::Touched(SlotId slot, uint32_t /*rows*/) {
  Unlink(slot.value);
  LinkFirst(slot.value);
}

void LruPolicy::Erased(SlotId slot) { Unlink(slot.value); }

SlotId LruPolicy::Victim(const PinView& pins) const {
  uint32_t i = links_[sentinel()].previous;
  while (i != sentinel() && pins.is_pinned(SlotId{i})) i = links_[i].previous;
  CHECK(i != sentinel());
  return SlotId{i};
}

void LruPolicy::Unlink(uint32_t i) {
  links_[links_[i].previous].next = links_[i].next;
  links_[links_[i].next].previous = links_[i].previous;
}

void LruPolicy::LinkFirst(uint32_t i) {
  const uint32_t head = sentinel();
  links_[i] = {.previous = head, .next = links_[head].next};
  links_[links_[head].next].previous = i;
  links_[head].next = i;
}

std::unique_ptr<Policy> MakeLru(const PolicyValues& /*values*/) {
  return std::make_unique<LruPolicy>();
}

// Least frequently used, counted over everything since the model was loaded (lfu) or since the
// sequence began (lfu-seq; HOBBIT found that a sequence's own counts hit more).

namespace {

class LfuPolicy final : public RankedPolicy {
 public:
  explicit LfuPolicy(bool is_per_sequence) : is_per_sequence_(is_per_sequence) {}

  void SequenceBegun() override {
    if (!is_per_sequence_) return;
    for (uint64_t& uses : uses_.all()) uses = 0;
    ClearRanks();
  }
  SlotId Victim(const PinView& pins) const override {
    return ranking_.Lowest(pins, [](ExpertLayerId, double uses) { return uses; });
  }

 private:
  void Forget(const PolicyShape& shape) override { uses_.Reset(shape.layers, shape.experts); }
  double Used(ExpertKey key, uint32_t rows) override {
    return static_cast<double>(uses_[key] += rows);
  }

  bool is_per_sequence_;
  ExpertTable<uint64_t> uses_;
};

}  // namespace

std::unique_ptr<Policy> MakeLfu(const PolicyValues& /*values*/) {
  return std::make_unique<LfuPolicy>(false);
}
std::unique_ptr<Policy> MakeLfuSeq(const PolicyValues& /*values*/) {
  return std::make_unique<LfuPolicy>(true);
}

// Frequency weighted by recency: every use counts 1 and loses half of it every `half_life` tokens.

namespace {

class LfruPolicy final : public RankedPolicy {
 public:
  explicit LfruPolicy(double half_life) : half_life_(half_life) {}

  void LayerBegun(ExpertLayerId layer) override {
    RankedPolicy::LayerBegun(layer);
    if (BeginsStep(layer)) ++token_;
  }
  SlotId Victim(const PinView& pins) const override {
    return ranking_.Lowest(pins, [](ExpertLayerId, double weight) { return weight; });
  }

 private:
  void Forget(const PolicyShape& shape) override {
    log_weight_.Reset(shape.layers, shape.experts);
    for (double& weight : log_weight_.all()) weight = -HUGE_VAL;
    token_ = 0;
  }
  // All weights decay alike, so their order does not: the sum of 2^(token / half_life) over the
  // uses, as a logarithm because it grows without end.
  double Used(ExpertKey key, uint32_t rows) override {
    double& weight = log_weight_[key];
    const double use = static_cast<double>(token_) / half_life_;
    weight = use + std::log2(rows + std::exp2(weight - use));
    return weight;
  }

  double half_life_;
  ExpertTable<double> log_weight_;
  uint64_t token_ = 0;
};

}  // namespace

std::unique_ptr<Policy> MakeLfru(const PolicyValues& values) {
  return std::make_unique<LfruPolicy>(values.find("half_life")->second);
}

// Farthest layer distance: the layer that runs again last gives up its least recently used expert.

namespace {

class FldPolicy final : public RankedPolicy {
 public:
  SlotId Victim(const PinView& pins) const override {
    return ranking_.Lowest(pins, [this](ExpertLayerId layer, double) {
      return -static_cast<double>(LayersUntil(layer));
    });
  }

 private:
  void Forget(const PolicyShape& /*shape*/) override {}
  double Used(ExpertKey /*key*/, uint32_t /*rows*/) override {
    return 0.0;
  }  // ties leave oldest first
};

}  // namespace

std::unique_ptr<Policy> MakeFld(const PolicyValues& /*values*/) {
  return std::make_unique<FldPolicy>();
}

// EdgeMoE's keep-score: frequency x layers since the expert's layer ran, so that experts of layers
// that have just run leave first, and those of layers about to run stay. An encoder's experts have
// the frequency 0.

namespace {

class EdgeMoePolicy final : public RankedPolicy {
 public:
  SlotId Victim(const PinView& pins) const override {
    const uint32_t n = step_layers();
    return ranking_.Lowest(pins, [this, n](ExpertLayerId layer, double uses) {
      return uses * ((n - LayersAhead(layer)) % n);
    });
  }

 private:
  void Forget(const PolicyShape& shape) override { uses_.Reset(shape.layers, shape.experts); }
  double Used(ExpertKey key, uint32_t rows) override {
    return static_cast<double>(uses_[key] += rows);
  }

  ExpertTable<uint64_t> uses_;
};

}  // namespace

std::unique_ptr<Policy> MakeEdgeMoe(const PolicyValues& /*values*/) {
  return std::make_unique<EdgeMoePolicy>();
}

// HOBBIT's sequence-level priority:
//   w_lru R/T + w_lfu F/T + w_lhu H/T + w_fld (1 - ((l_t - l_i + l_n) mod l_n) / l_n)
// with T tokens so far in the sequence, R the token of the last use, F uses, H uses in high
// precision, l_t the expert's layer, l_i the current one, l_n layers. R, F and H begin anew with
// each sequence.

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
