// SPDX-License-Identifier: MIT
// Our own: estimates when each resident expert will be needed again, and evicts what gives the
// fewest hits for the time it takes up its slot.
//
// An expert may be used once in every pass of its layer. The chance of that is learned while
// running, in a table by how long ago the expert was used, how long before that, and how often
// relative to its layer's mean; cells without experience fall back on the frequency. The score is
// that chance over the layers until the pass. (To evict the latest expected use instead, as
// Belady's rule does with what it knows, hits less: a mean is far away for whatever comes back
// irregularly. docs/policies.md has the figures.)
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "decide/policies/policies.h"
#include "decide/policies/ranked_policy.h"

namespace moestro {
namespace {

constexpr uint32_t kAges = 10;      // passes since the last use: 0, 1, 2-3, 4-7, ..., never
constexpr uint32_t kIntervals = 4;  // passes between the last two uses: 1, 2-3, 4-7, more
constexpr uint32_t kFrequencies = 8;

class NextUsePolicy final : public RankedPolicy {
 public:
  NextUsePolicy(double half_life, double prior)
      : keep_(std::exp2(-1.0 / half_life)), prior_(prior) {}

  void LayerBegun(LayerId layer) override {
    if (has_begun_) EndPass(now());
    RankedPolicy::LayerBegun(layer);
    has_begun_ = true;
  }
  SlotId Victim(const PinView& pins) const override {
    return ranking_.Lowest(
        pins, [this](LayerId layer, double chance) { return chance / LayersUntil(layer); });
  }

 private:
  struct History {
    double weight = 0.0;  // decayed count of uses
    uint32_t age = 0;     // passes since the last use
    uint32_t interval = 0;
    bool was_used = false;  // ever
    bool is_used_now = false;
  };
  struct Cell {
    double passes = 0.0;
    double uses = 0.0;
  };

  void Forget(const PolicyShape& shape) override {
    history_.Reset(shape.layers, shape.experts);
    passes_.assign(shape.layers, 0.0);
    cells_.fill(Cell{});
    has_begun_ = false;
  }
  double Used(ExpertKey key) override {
    history_[key].is_used_now = true;
    return 1.0;  // until the end of this pass tells more
  }

  // Learns from the pass of `layer` that has just ended and ranks its experts anew.
  void EndPass(LayerId layer) {
    // A table sees only the layers of its pool being used.
    if (!std::ranges::any_of(history_.of(layer), &History::is_used_now)) return;
    double& passes = passes_[layer.value];
    const double mean_before = Mean(layer);
    passes = passes * keep_ + 1.0;
    for (History& h : history_.of(layer)) {
      Cell& cell = CellOf(h, mean_before);
      cell.passes += 1.0;
      h.weight *= keep_;
      if (h.is_used_now) {
        cell.uses += 1.0;
        h.weight += 1.0;
        h.interval = h.was_used ? h.age + 1 : 0;
        h.age = 0;
        h.was_used = true;
      } else {
        ++h.age;
      }
      h.is_used_now = false;
    }
    const double mean = Mean(layer);
    for (const SlotId slot : ranking_.slots_of(layer)) {
      ranking_.Set(slot, Chance(history_[key_of(slot)], mean, passes));
    }
  }

  double Mean(LayerId layer) {
    double sum = 0.0;
    for (const History& h : history_.of(layer)) sum += h.weight;
    return sum / static_cast<double>(history_.of(layer).size());
  }

  // That the next pass uses the expert.
  double Chance(const History& h, double mean, double passes) {
    const Cell& cell = CellOf(h, mean);
    const double frequency = h.weight / std::max(passes, 1.0);
    return std::clamp((cell.uses + prior_ * frequency) / (cell.passes + prior_), 1e-4, 1.0);
  }
  Cell& CellOf(const History& h, double mean) {
    const uint32_t aged =
        h.was_used ? std::min<uint32_t>(std::bit_width(h.age), kAges - 2) : kAges - 1;
    const uint32_t interval =
        h.interval == 0 ? kIntervals - 1
                        : std::min<uint32_t>(std::bit_width(h.interval) - 1, kIntervals - 1);
    const double relative = mean > 0.0 ? h.weight / mean : 0.0;
    const double steps = relative > 0.0 ? 2.0 * std::log2(relative) + kFrequencies / 2.0 : 0.0;
    const auto frequency = static_cast<uint32_t>(std::clamp(steps, 0.0, kFrequencies - 1.0));
    return cells_[(aged * kIntervals + interval) * kFrequencies + frequency];
  }

  double keep_;   // share of a count that is left after a pass
  double prior_;  // passes of experience that the frequency counts for
  ExpertTable<History> history_;
  std::vector<double> passes_;  // per layer, decayed like the counts
  std::array<Cell, kAges * kIntervals * kFrequencies> cells_{};
  bool has_begun_ = false;
};

}  // namespace

std::unique_ptr<Policy> MakeNextUse(const PolicyValues& values) {
  return std::make_unique<NextUsePolicy>(values.find("half_life")->second,
                                         values.find("prior")->second);
}

}  // namespace moestro
