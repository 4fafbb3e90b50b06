// SPDX-License-Identifier: MIT
// Our own: estimates when each resident expert will be needed again, and evicts the expert with the
// fewest expected hits for the time that it takes up its slot.
//
// An expert may be used once in every pass of its layer. The chance of that is learned while
// running, in a table by how long ago the expert was used, how long before that, and how often
// relative to its layer's mean; cells without experience fall back on the frequency. The score is
// that chance over the layers until the pass. (To evict the latest expected use instead, as
// Belady's rule does with the true next use, hits less: the mean is far away for experts that come
// back irregularly. docs/policies-results.md has the figures.)
//
// Experience changes with every pass, and with it the ranks of a layer's experts, two or three
// times per token. Hardly any of these ranks is ever read, none where every expert has a slot. So a
// layer notes the experience that it will rank by, and ranks when a victim is requested.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "decide/slots/policies/policies.h"
#include "decide/slots/policies/ranked_policy.h"

namespace moestro {
namespace {

constexpr uint32_t kAges = 10;      // passes since the last use: 0, 1, 2-3, 4-7, ..., never
constexpr uint32_t kIntervals = 4;  // passes between the last two uses: 1, 2-3, 4-7, more
constexpr uint32_t kFrequencies = 8;
constexpr uint32_t kMaxDistance = 4;  // layers ahead of which predictions are taken

class NextUsePolicy final : public RankedPolicy {
 public:
  NextUsePolicy(double half_life, double prior)
      : keep_(std::exp2(-1.0 / half_life)), prior_(prior) {
    const auto row_of = [](double relative) {
      return 2.0 * std::log2(relative) + kFrequencies / 2.0;
    };
    for (size_t i = 0; i < frequency_begins_.size(); ++i) {
      const auto row = static_cast<double>(i + 1);
      double begin = std::exp2((row - kFrequencies / 2.0) / 2.0);
      while (row_of(begin) >= row) begin = std::nextafter(begin, 0.0);
      while (row_of(begin) < row) begin = std::nextafter(begin, HUGE_VAL);
      frequency_begins_[i] = begin;
    }
  }

  void LayerBegun(ExpertLayerId layer) override {
    if (has_begun_) EndPass(now());
    RankedPolicy::LayerBegun(layer);
    has_begun_ = true;
    // Experts that are not requested from now on wait for the next pass, one pass older.
    Defer(layer, {.by = By::kUnused});
  }
  void Predicted(ExpertLayerId layer, std::span<const ExpertId> experts) override {
    const uint32_t distance = LayersUntil(layer);
    if (distance > kMaxDistance) return;
    Prediction& predicted = predicted_[layer.value];
    predicted.distance = distance;
    predicted.is_predicted[distance - 1].assign(history_.of(layer).size(), false);
    for (const ExpertId e : experts) predicted.is_predicted[distance - 1][e.value] = true;
    Defer(layer, {.by = By::kPrediction, .distance = distance, .trust = trust_[distance - 1]});
  }
  // Counts the row as if it had been decoded: a pass of its own.
  void Prompted(ExpertLayerId layer, std::span<const ExpertId> experts) override {
    if (has_begun_) EndPass(now());
    for (const ExpertId e : experts) Used({.layer = layer, .expert = e}, 1);
    EndPass(layer);
  }
  void Erased(SlotId slot) override {
    Settle(ranking_.layer_of(slot));
    RankedPolicy::Erased(slot);
  }
  SlotId Victim(const PinView& pins) const override {
    for (uint32_t l = 0; l < ranking_.layers(); ++l)
      Settle(ExpertLayerId{static_cast<uint16_t>(l)});
    return ranking_.Lowest(
        pins, [this](ExpertLayerId layer, double chance) { return chance / LayersUntil(layer); });
  }

 private:
  struct History {
    double weight = 0.0;  // decayed count of uses
    uint32_t age = 0;     // passes since the last use
    uint32_t interval = 0;
    bool was_used = false;  // ever
    uint32_t rows_now = 0;  // rows that use the expert in this pass
    bool is_used_now() const { return rows_now > 0; }
  };
  // Predictions for a layer's next pass, by distance.
  struct Prediction {
    uint32_t distance = 0;  // distance of the latest prediction; 0: none
    std::array<std::vector<bool>, kMaxDistance> is_predicted;
  };
  // Trust in predictions of one distance: experts used and not used, and how many of each had been
  // predicted. Begins with a weak belief that predictions are worth something.
  struct Trust {
    double used = 20.0;
    double used_predicted = 10.0;
    double unused = 20.0;
    double unused_predicted = 4.0;

    void Learn(bool was_predicted, bool was_used) {
      double& all = was_used ? used : unused;
      double& predicted = was_used ? used_predicted : unused_predicted;
      all += 1.0;
      predicted += was_predicted ? 1.0 : 0.0;
      if (all < 4000.0) return;
      all /= 2.0;
      predicted /= 2.0;
    }
    // Bayes: the chance of a use, given that it was predicted or not.
    double Update(double chance, bool is_predicted) const {
      const double hit = used_predicted / used;
      const double miss = unused_predicted / unused;
      const double if_used = chance * (is_predicted ? hit : 1.0 - hit);
      const double if_unused = (1.0 - chance) * (is_predicted ? miss : 1.0 - miss);
      const double sum = if_used + if_unused;
      return sum > 0.0 ? if_used / sum : chance;
    }
  };
  struct Cell {
    double passes = 0.0;
    double uses = 0.0;
  };
  using Cells = std::array<Cell, kAges * kIntervals * kFrequencies>;
  // Way to rank a layer's experts: by history, as if unused in the pass that begins, or by a
  // prediction. A layer's history does not change while its way stays the same.
  enum class By : uint8_t { kHistory, kUnused, kPrediction };
  struct Ranking {
    By by = By::kHistory;
    uint32_t distance = 0;  // of the prediction
    Trust trust = {};       // trust in that prediction
    uint64_t version = 0;   // of the experience
  };

  void Forget(const PolicyShape& shape) override {
    history_.Reset(shape.layers, shape.experts);
    passes_.assign(shape.layers, 0.0);
    cells_.fill(Cell{});
    version_ = 0;
    earlier_.assign(shape.layers, Cells{});
    rankings_.assign(shape.layers, Ranking{});
    predicted_.assign(shape.layers, Prediction{});
    trust_.fill(Trust{});
    has_begun_ = false;
  }
  double Used(ExpertKey key, uint32_t rows) override {
    history_[key].rows_now = rows;
    return 1.0;  // until the pass ends and its rank is computed
  }

  // Learns from the pass of `layer` that has just ended and ranks its experts anew.
  void EndPass(ExpertLayerId layer) {
    // Layers of other pools show no uses in this table.
    if (!std::ranges::any_of(history_.of(layer), &History::is_used_now)) return;
    KeepExperience();
    LearnTrust(layer);
    double& passes = passes_[layer.value];
    const double mean_before = Mean(layer);
    passes = passes * keep_ + 1.0;
    for (History& h : history_.of(layer)) {
      Cell& cell = cells_[CellOf(h, mean_before)];
      cell.passes += 1.0;
      h.weight *= keep_;
      if (h.is_used_now()) {
        cell.uses += 1.0;
        h.weight += h.rows_now;
        h.interval = h.was_used ? h.age + 1 : 0;
        h.age = 0;
        h.was_used = true;
      } else {
        ++h.age;
      }
      h.rows_now = 0;
    }
    Defer(layer, {.by = By::kHistory});
  }

  // Keeps the experience before it changes, because deferred ranks may be based on it.
  void KeepExperience() {
    Cells& place = earlier_[version_ % earlier_.size()];
    for (uint32_t l = 0; l < ranking_.layers() && version_ >= earlier_.size(); ++l) {
      if (rankings_[l].version + earlier_.size() == version_) {
        Settle(ExpertLayerId{static_cast<uint16_t>(l)});
      }
    }
    place = cells_;
    ++version_;
  }

  void Defer(ExpertLayerId layer, const Ranking& ranking) {
    rankings_[layer.value] = ranking;
    rankings_[layer.value].version = version_;
    ranking_.Defer(layer);
  }

  void Settle(ExpertLayerId layer) const {
    if (ranking_.is_settled(layer)) return;
    const Ranking& ranking = rankings_[layer.value];
    const Cells& cells =
        ranking.version == version_ ? cells_ : earlier_[ranking.version % earlier_.size()];
    const bool is_unused = ranking.by == By::kUnused;
    const double mean = is_unused ? Mean(layer) * keep_ : Mean(layer);
    double passes = passes_[layer.value];
    if (is_unused) passes = passes * keep_ + 1.0;
    ranking_.Settle(layer, [&](SlotId slot) {
      const ExpertKey key = key_of(slot);
      History history = history_[key];
      if (is_unused) {
        history.weight *= keep_;
        ++history.age;
      }
      const double chance = Chance(cells[CellOf(history, mean)], history, passes);
      return ranking.by == By::kPrediction ? Foreseen(ranking, key, chance) : chance;
    });
  }

  double Foreseen(const Ranking& ranking, ExpertKey key, double chance) const {
    const Prediction& predicted = predicted_[key.layer.value];
    const double now = ranking.trust.Update(
        chance, predicted.is_predicted[ranking.distance - 1][key.expert.value]);
    // An expert that is not used now may be used in the pass after this one.
    const double later = chance * ranking.distance / (ranking.distance + step_layers());
    return std::min(chance, now + (1.0 - now) * later);
  }

  void LearnTrust(ExpertLayerId layer) {
    Prediction& predicted = predicted_[layer.value];
    const auto history = history_.of(layer);
    for (uint32_t d = 1; d <= kMaxDistance && predicted.distance > 0; ++d) {
      std::vector<bool>& is_predicted = predicted.is_predicted[d - 1];
      for (size_t e = 0; e < is_predicted.size(); ++e) {
        trust_[d - 1].Learn(is_predicted[e], history[e].is_used_now());
      }
      is_predicted.clear();
    }
    predicted.distance = 0;
  }

  double Mean(ExpertLayerId layer) const {
    double sum = 0.0;
    for (const History& h : history_.of(layer)) sum += h.weight;
    return sum / static_cast<double>(history_.of(layer).size());
  }

  // Probability that the next pass uses the expert.
  double Chance(const Cell& cell, const History& h, double passes) const {
    const double frequency = std::min(h.weight / std::max(passes, 1.0), 1.0);
    return std::clamp((cell.uses + prior_ * frequency) / (cell.passes + prior_), 1e-4, 1.0);
  }
  size_t CellOf(const History& h, double mean) const {
    const uint32_t aged =
        h.was_used ? std::min<uint32_t>(std::bit_width(h.age), kAges - 2) : kAges - 1;
    const uint32_t interval =
        h.interval == 0 ? kIntervals - 1
                        : std::min<uint32_t>(std::bit_width(h.interval) - 1, kIntervals - 1);
    const double relative = mean > 0.0 ? h.weight / mean : 0.0;
    uint32_t frequency = 0;
    for (const double begin : frequency_begins_) frequency += relative >= begin ? 1 : 0;
    return (aged * kIntervals + interval) * kFrequencies + frequency;
  }

  double keep_;   // share of a count that is left after a pass
  double prior_;  // weight of the frequency, in passes of experience
  ExpertTable<History> history_;
  std::vector<double> passes_;         // per layer, decayed like the counts
  std::vector<Prediction> predicted_;  // [layer]
  std::array<Trust, kMaxDistance> trust_{};
  Cells cells_{};                  // the experience
  uint64_t version_ = 0;           // number of changes of the experience
  std::vector<Cells> earlier_;     // [version % layers]: earlier experience
  std::vector<Ranking> rankings_;  // [layer]
  // The least frequencies, relative to the mean, of all rows of cells but the first: where twice
  // the logarithm reaches the next whole number.
  std::array<double, kFrequencies - 1> frequency_begins_{};
  bool has_begun_ = false;
};

}  // namespace

std::unique_ptr<Policy> MakeNextUse(const PolicyValues& values) {
  return std::make_unique<NextUsePolicy>(values.find("half_life")->second,
                                         values.find("prior")->second);
}

}  // namespace moestro
