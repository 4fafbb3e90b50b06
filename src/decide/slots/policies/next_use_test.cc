// SPDX-License-Identifier: MIT
// The policy ranks when a victim is asked for. Here is the same idea without that: every layer is
// ranked at once, whenever something is learned.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "decide/slots/policies/pins_testing.h"
#include "decide/slots/policy.h"

namespace moestro {
namespace {

class EagerNextUse {
 public:
  EagerNextUse(const PolicyShape& shape, double half_life, double prior)
      : keep_(std::exp2(-1.0 / half_life)),
        prior_(prior),
        slots_(shape.slots),
        layers_(shape.layers, std::vector<Expert>(shape.experts)),
        order_(shape.layers),
        passes_(shape.layers),
        predicted_(shape.layers) {}

  void LayerBegun(uint16_t layer) {
    if (has_begun_) EndPass(now_);
    now_ = layer;
    has_begun_ = true;
    const double mean = Mean(layer) * keep_;
    const double passes = passes_[layer] * keep_ + 1.0;
    for (const uint32_t s : order_[layer]) {
      Expert expert = expert_of(s);
      expert.weight *= keep_;
      ++expert.age;
      Set(s, Chance(expert, mean, passes));
    }
  }
  void Predicted(uint16_t layer, const std::vector<ExpertId>& experts) {
    const uint32_t distance = Ahead(layer);
    if (distance > 4) return;
    auto& predicted = predicted_[layer];
    predicted.distance = distance;
    predicted.said[distance - 1] = std::vector<bool>(layers_[layer].size());
    for (const ExpertId e : experts) (*predicted.said[distance - 1])[e.value] = true;
    for (const uint32_t s : order_[layer]) {
      const double chance = Chance(expert_of(s), Mean(layer), passes_[layer]);
      const Trust& trust = trust_[distance - 1];
      const bool is_said = (*predicted.said[distance - 1])[slots_[s].key.expert.value];
      const double hit = trust.used_said / trust.used;
      const double miss = trust.unused_said / trust.unused;
      const double if_used = chance * (is_said ? hit : 1.0 - hit);
      const double if_unused = (1.0 - chance) * (is_said ? miss : 1.0 - miss);
      const double now = if_used + if_unused > 0.0 ? if_used / (if_used + if_unused) : chance;
      const double later = chance * distance / (distance + static_cast<uint32_t>(layers_.size()));
      Set(s, std::min(chance, now + (1.0 - now) * later));
    }
  }
  void Prompted(uint16_t layer, const std::vector<ExpertId>& experts) {
    if (has_begun_) EndPass(now_);
    for (const ExpertId e : experts) layers_[layer][e.value].rows = 1;
    EndPass(layer);
  }
  void Inserted(uint32_t s, ExpertKey key, uint32_t rows) {
    slots_[s] = {.is_used = true, .key = key};
    order_[key.layer.value].push_back(s);
    Touched(s, rows);
  }
  void Touched(uint32_t s, uint32_t rows) {
    expert_of(s).rows = rows;
    Set(s, 1.0);
  }
  void Erased(uint32_t s) {
    slots_[s].is_used = false;
    auto& order = order_[slots_[s].key.layer.value];
    *std::ranges::find(order, s) = order.back();
    order.pop_back();
  }
  uint32_t Victim(const PinView& pins) const {
    std::optional<uint32_t> lowest;
    const auto is_before = [&](uint32_t a, uint32_t b) {
      const double of_a = slots_[a].rank / Ahead(slots_[a].key.layer.value);
      const double of_b = slots_[b].rank / Ahead(slots_[b].key.layer.value);
      // Within a layer ranks decide: different ones may have equal scores.
      if (slots_[a].key.layer == slots_[b].key.layer && slots_[a].rank != slots_[b].rank) {
        return slots_[a].rank < slots_[b].rank;
      }
      return of_a < of_b || (of_a == of_b && slots_[a].set_at < slots_[b].set_at);
    };
    for (uint16_t l = 0; l < layers_.size(); ++l) {
      std::optional<uint32_t> of_layer;
      for (const uint32_t s : order_[l]) {
        if (!pins.is_pinned(SlotId{s}) && (!of_layer || is_before(s, *of_layer))) of_layer = s;
      }
      if (of_layer && (!lowest || is_before(*of_layer, *lowest))) lowest = of_layer;
    }
    return lowest.value();
  }

 private:
  struct Slot {
    bool is_used = false;
    ExpertKey key{};
    double rank = 0.0;
    uint64_t set_at = 0;
  };
  struct Expert {
    double weight = 0.0;
    uint32_t age = 0;
    uint32_t interval = 0;
    bool was_used = false;
    uint32_t rows = 0;
  };
  struct Cell {
    double passes = 0.0;
    double uses = 0.0;
  };
  struct Said {
    uint32_t distance = 0;
    std::array<std::optional<std::vector<bool>>, 4> said;
  };
  struct Trust {
    double used = 20.0;
    double used_said = 10.0;
    double unused = 20.0;
    double unused_said = 4.0;
  };

  uint32_t Ahead(uint16_t layer) const {
    const auto n = static_cast<uint32_t>(layers_.size());
    const uint32_t ahead = (layer + n - now_) % n;
    return ahead == 0 ? n : ahead;
  }
  Expert& expert_of(uint32_t s) {
    return layers_[slots_[s].key.layer.value][slots_[s].key.expert.value];
  }
  void Set(uint32_t s, double rank) {
    slots_[s].rank = rank;
    slots_[s].set_at = ++clock_;
  }
  double Mean(uint16_t layer) const {
    double sum = 0.0;
    for (const Expert& e : layers_[layer]) sum += e.weight;
    return sum / static_cast<double>(layers_[layer].size());
  }
  Cell& CellOf(const Expert& e, double mean) {
    const uint32_t aged = e.was_used ? std::min<uint32_t>(std::bit_width(e.age), 8) : 9;
    const uint32_t interval =
        e.interval == 0 ? 3 : std::min<uint32_t>(std::bit_width(e.interval) - 1, 3);
    const double relative = mean > 0.0 ? e.weight / mean : 0.0;
    const double steps = relative > 0.0 ? 2.0 * std::log2(relative) + 4.0 : 0.0;
    return cells_[(aged * 4 + interval) * 8 + static_cast<uint32_t>(std::clamp(steps, 0.0, 7.0))];
  }
  double Chance(const Expert& e, double mean, double passes) {
    const Cell& cell = CellOf(e, mean);
    const double frequency = std::min(e.weight / std::max(passes, 1.0), 1.0);
    return std::clamp((cell.uses + prior_ * frequency) / (cell.passes + prior_), 1e-4, 1.0);
  }
  void EndPass(uint16_t layer) {
    auto& experts = layers_[layer];
    if (std::ranges::all_of(experts, [](const Expert& e) { return e.rows == 0; })) return;
    LearnTrust(layer);
    const double mean = Mean(layer);
    passes_[layer] = passes_[layer] * keep_ + 1.0;
    for (Expert& e : experts) {
      Cell& cell = CellOf(e, mean);
      cell.passes += 1.0;
      e.weight *= keep_;
      ++e.age;
      if (e.rows > 0) {
        cell.uses += 1.0;
        e.weight += e.rows;
        e.interval = e.was_used ? e.age : 0;
        e.age = 0;
        e.was_used = true;
      }
      e.rows = 0;
    }
    for (const uint32_t s : order_[layer]) {
      Set(s, Chance(expert_of(s), Mean(layer), passes_[layer]));
    }
  }
  void LearnTrust(uint16_t layer) {
    Said& predicted = predicted_[layer];
    for (uint32_t d = 0; d < 4; ++d) {
      if (predicted.distance == 0 || !predicted.said[d]) continue;
      Trust& trust = trust_[d];
      for (size_t e = 0; e < layers_[layer].size(); ++e) {
        const bool was_used = layers_[layer][e].rows > 0;
        double& all = was_used ? trust.used : trust.unused;
        double& said = was_used ? trust.used_said : trust.unused_said;
        all += 1.0;
        said += (*predicted.said[d])[e] ? 1.0 : 0.0;
        if (all >= 4000.0) {
          all /= 2.0;
          said /= 2.0;
        }
      }
      predicted.said[d].reset();
    }
    predicted.distance = 0;
  }

  double keep_;
  double prior_;
  std::vector<Slot> slots_;
  std::vector<std::vector<Expert>> layers_;
  std::vector<std::vector<uint32_t>> order_;  // [layer]: slots as they came
  std::vector<double> passes_;
  std::vector<Said> predicted_;
  std::array<Trust, 4> trust_{};
  std::array<Cell, 320> cells_{};
  uint64_t clock_ = 0;
  uint16_t now_ = 0;
  bool has_begun_ = false;
};

// Both, side by side, with the slots that are used.
class Both {
 public:
  Both(const PolicyShape& shape, uint32_t seed)
      : shape_(shape), eager_(shape, 32.0, 4.0), slots_(shape.slots), random_(seed) {
    auto lazy = MakePolicy({.name = "next-use", .parameters = {{"half_life", 32}, {"prior", 4}}});
    EXPECT_TRUE(lazy);
    lazy_ = std::move(*lazy);
    lazy_->Reset(shape);
  }

  void Begin(uint16_t layer) {
    now_ = layer;
    lazy_->LayerBegun(ExpertLayerId{layer});
    eager_.LayerBegun(layer);
  }
  void Predict(uint16_t layer) {
    std::vector<ExpertId> experts;
    for (uint32_t i = 0; i < 3; ++i) experts.push_back(AnyExpert());
    lazy_->Predicted(ExpertLayerId{layer}, experts);
    eager_.Predicted(layer, experts);
  }
  void Prompt(uint16_t layer) {
    const std::vector<ExpertId> experts = {AnyExpert(), AnyExpert()};
    lazy_->Prompted(ExpertLayerId{layer}, experts);
    eager_.Prompted(layer, experts);
  }
  // An expert of the layer; who leaves for it is compared.
  void Use(uint32_t rows) {
    const ExpertKey key{.layer = {now_}, .expert = AnyExpert()};
    const auto there = std::ranges::find(slots_, std::optional(key));
    const auto free = std::ranges::find(slots_, std::optional<ExpertKey>());
    if (there != slots_.end()) {
      const auto s = static_cast<uint32_t>(there - slots_.begin());
      lazy_->Touched(SlotId{s}, rows);
      eager_.Touched(s, rows);
      return;
    }
    auto s = static_cast<uint32_t>(free - slots_.begin());
    if (free == slots_.end()) s = Leave();
    slots_[s] = key;
    lazy_->Inserted(SlotId{s}, key, rows);
    eager_.Inserted(s, key, rows);
  }
  void UseSomebodyThere() {
    for (uint32_t s = 0; s < slots_.size(); ++s) {
      if (!slots_[s] || slots_[s]->layer.value != now_ || random_() % 2 == 0) continue;
      lazy_->Touched(SlotId{s}, 1);
      eager_.Touched(s, 1);
    }
  }
  // As after a failed read.
  void Lose() {
    const auto s = static_cast<uint32_t>(random_() % slots_.size());
    if (slots_[s]) Erase(s);
  }
  uint64_t compared() const { return compared_; }
  uint32_t Random() { return static_cast<uint32_t>(random_()); }

 private:
  ExpertId AnyExpert() {
    const double u = static_cast<double>(random_() % 1000) / 1000.0;
    return {static_cast<uint16_t>(u * u * shape_.experts)};
  }
  uint32_t Leave() {
    std::set<uint32_t> pinned;
    for (int i = 0; i < 3; ++i) pinned.insert(static_cast<uint32_t>(random_() % slots_.size()));
    const Pins pins(pinned);
    const uint32_t victim = eager_.Victim(pins);
    EXPECT_EQ(lazy_->Victim(pins).value, victim);
    ++compared_;
    Erase(victim);
    return victim;
  }
  void Erase(uint32_t s) {
    slots_[s].reset();
    lazy_->Erased(SlotId{s});
    eager_.Erased(s);
  }

  PolicyShape shape_;
  std::unique_ptr<Policy> lazy_;
  EagerNextUse eager_;
  std::vector<std::optional<ExpertKey>> slots_;
  std::mt19937 random_;
  uint16_t now_ = 0;
  uint64_t compared_ = 0;
};

TEST(NextUse, EvictsWhomItWouldEvictIfItRankedAtOnce) {
  const PolicyShape shape{.slots = 30, .layers = 6, .experts = 12};
  Both both(shape, 1);
  for (int token = 0; token < 800 && !testing::Test::HasFailure(); ++token) {
    for (int row = 0; token % 100 == 0 && row < 120; ++row) {
      both.Prompt(static_cast<uint16_t>(row / 20));
    }
    for (uint16_t l = 0; l < 6; ++l) {
      both.Begin(l);
      if (both.Random() % 2 == 0 && l + 1 < 6) both.Predict(static_cast<uint16_t>(l + 1));
      if (both.Random() % 4 == 0 && l + 2 < 6) both.Predict(static_cast<uint16_t>(l + 2));
      for (int k = 0; k < 3; ++k) both.Use(1 + both.Random() % 2);
    }
  }
  EXPECT_GT(both.compared(), 3000U);
}

// The older expert would leave if both had been used alike.
TEST(NextUse, KnowsWhomThePromptUsedOften) {
  auto policy = *MakePolicy({.name = "next-use"});
  policy->Reset({.slots = 2, .layers = 1, .experts = 8});
  const std::vector<ExpertId> rare = {{1}, {2}};
  const std::vector<ExpertId> often = {{0}, {2}};
  for (int row = 0; row < 40; ++row) {
    policy->Prompted(ExpertLayerId{0}, row % 10 == 0 ? rare : often);
  }
  policy->LayerBegun(ExpertLayerId{0});
  policy->Inserted(SlotId{0}, {.layer = {0}, .expert = {0}}, 1);
  policy->Inserted(SlotId{1}, {.layer = {0}, .expert = {1}}, 1);
  policy->LayerBegun(ExpertLayerId{0});
  EXPECT_EQ(policy->Victim(Pins({})), SlotId{1});
}

// Long times without a victim, layers without requests, layers that run in no order or not at all.
TEST(NextUse, RanksThatWaitedLongAreThoseOfTheirTime) {
  for (const uint32_t layers : {1U, 2U, 5U}) {
    const PolicyShape shape{.slots = layers * 6, .layers = layers, .experts = 12};
    Both both(shape, layers);
    for (int step = 0; step < 6000 && !testing::Test::HasFailure(); ++step) {
      // Every other time only two of the layers run and no expert leaves: the others wait for more
      // passes than there are layers.
      const bool is_quiet = step / 20 % 2 == 1;
      const uint32_t some = is_quiet ? std::min(layers, 2U) : layers;
      both.Begin(static_cast<uint16_t>(both.Random() % some));
      if (is_quiet) {
        both.UseSomebodyThere();
        continue;
      }
      both.Predict(static_cast<uint16_t>(both.Random() % layers));
      for (uint32_t k = both.Random() % 3; k > 0; --k) both.Use(1);
      if (both.Random() % 20 == 0) both.Lose();
    }
    EXPECT_GT(both.compared(), 50U) << layers;
  }
}

}  // namespace
}  // namespace moestro
