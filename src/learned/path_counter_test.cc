// SPDX-License-Identifier: MIT
#include "learned/path_counter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "decide/ahead/path_table.h"
#include "decide/ahead/predictors.h"

namespace moestro {
namespace {

std::vector<ExpertId> Ids(const std::vector<uint16_t>& values) {
  std::vector<ExpertId> ids;
  for (const uint16_t value : values) ids.push_back({value});
  return ids;
}

std::set<uint16_t> AsSet(std::span<const ExpertId> ids) {
  std::set<uint16_t> set;
  for (const ExpertId id : ids) set.insert(id.value);
  return set;
}

constexpr MoeShape kShape{.n_layer = 6, .n_expert = 16, .n_used = 2};

// The experts of a token of kind 0 to 7 in `layer`. In layer 1 kinds k and k + 4 use the same: only
// together with layer 0 they tell which kind it is.
std::vector<ExpertId> Planted(uint32_t kind, uint32_t layer) {
  if (layer == 0) return Ids({static_cast<uint16_t>(kind), static_cast<uint16_t>(kind + 8)});
  if (layer == 1) return Ids({static_cast<uint16_t>(kind % 4), 15});
  return Ids({static_cast<uint16_t>((kind * 3 + layer) % 8),
              static_cast<uint16_t>(8 + (kind * 5 + layer) % 8)});
}

std::vector<ExpertId> PlantedToken(uint32_t kind) {
  std::vector<ExpertId> token;
  for (uint32_t l = 0; l < kShape.n_layer; ++l) token.append_range(Planted(kind, l));
  return token;
}

PathTable LearnPlanted() {
  PathCounter counter(kShape);
  for (uint32_t t = 0; t < 80; ++t) counter.Add(PlantedToken(t % 8));
  EXPECT_EQ(counter.tokens(), 80U);
  return counter.Learn();
}

std::vector<ExpertId> Rank(const PathTable& table, size_t layer, std::span<const ExpertId> last,
                           std::span<const ExpertId> earlier, size_t count) {
  std::vector<ExpertId> best(count);
  std::vector<float> scores;
  table.Rank(layer, last, earlier, best, scores);
  return best;
}

TEST(PathCounter, FollowsPlantedPathsAtEveryDistance) {
  const auto table = std::make_shared<const PathTable>(LearnPlanted());
  const auto paths = MakePaths(table);
  paths->Reset({.moe = kShape, .depth = 3});
  EXPECT_TRUE(paths->Predict(1).empty()) << "nothing was observed";
  for (uint32_t kind = 0; kind < 8; ++kind) {
    for (uint32_t layer = 0; layer + 1 < kShape.n_layer; ++layer) {
      paths->Observe({.layer = {static_cast<uint16_t>(layer)}, .chosen = Planted(kind, layer)});
      for (uint32_t distance = 3; distance >= 1; --distance) {
        if (layer + distance >= kShape.n_layer) continue;
        EXPECT_EQ(AsSet(paths->Predict(distance)), AsSet(Planted(kind, layer + distance)))
            << "kind " << kind << " layer " << layer << " distance " << distance;
      }
    }
  }
}

TEST(PathCounter, APairTellsMoreThanItsExperts) {
  const PathTable table = LearnPlanted();
  // After layer 1 alone kinds 1 and 5 look the same.
  const auto both = AsSet(Rank(table, 2, Planted(1, 1), {}, 4));
  for (const uint32_t kind : {1U, 5U}) {
    for (const ExpertId e : Planted(kind, 2)) EXPECT_TRUE(both.contains(e.value)) << e.value;
    EXPECT_EQ(AsSet(Rank(table, 2, Planted(kind, 1), Planted(kind, 0), 2)),
              AsSet(Planted(kind, 2)));
  }
}

// Layers 0 to 2 are an encoder's. What comes after which is another rule in either stack.
TEST(PathCounter, StacksAreLearnedApart) {
  constexpr MoeShape kPair{.n_layer = 6, .n_expert = 8, .n_used = 1, .n_encoder = 3};
  PathCounter counter(kPair);
  std::mt19937 random(5);
  for (size_t t = 0; t < 400; ++t) {
    const bool is_source = t % 2 == 0;
    const auto first = static_cast<uint16_t>(random() % 8);
    std::vector<ExpertId> experts(6, ExpertId{60000});  // where the token does not go through
    for (uint16_t l = 0; l < 3; ++l) {
      const auto step = static_cast<uint16_t>(is_source ? l : 3 * l);
      experts[is_source ? l : l + 3U] = {static_cast<uint16_t>((first + step) % 8)};
    }
    counter.Add(experts, is_source);
  }
  const PathTable table = counter.Learn();
  std::vector<ExpertId> best(1);
  std::vector<float> scores;
  for (uint16_t e = 0; e < 8; ++e) {
    const std::vector<ExpertId> last = {{e}};
    table.Rank(1, last, {}, best, scores);
    EXPECT_EQ(best[0].value, (e + 1) % 8);
    table.Rank(4, last, {}, best, scores);
    EXPECT_EQ(best[0].value, (e + 3) % 8);
  }
  EXPECT_TRUE(table.layers()[3].keys.empty());  // no token goes through layers 2 and 3
  EXPECT_EQ(table.layers()[3].popularity.size(), 8U);
  // A decoder's second layer has no layer two before it.
  EXPECT_TRUE(std::ranges::all_of(table.layers()[4].keys,
                                  [](const PathKey& key) { return key.earlier == 0; }));
  EXPECT_FALSE(std::ranges::all_of(table.layers()[5].keys,
                                   [](const PathKey& key) { return key.earlier == 0; }));
}

TEST(PathCounter, BacksOffToOneLayerAndThenToPopularity) {
  const PathTable table = LearnPlanted();
  // Expert 15 never was in layer 0 together with these, so no pair is known.
  const auto unseen = Ids({15});
  EXPECT_EQ(Rank(table, 3, Planted(2, 2), unseen, 2), Rank(table, 3, Planted(2, 2), {}, 2));
  EXPECT_EQ(AsSet(Rank(table, 3, Planted(2, 2), unseen, 2)), AsSet(Planted(2, 3)));
  // Expert 14 is in no token's layer 1: popularity is left. Expert 15 is in every token's.
  EXPECT_EQ(Rank(table, 2, Ids({14}), {}, 16), Rank(table, 2, {}, {}, 16));
  EXPECT_EQ(Rank(table, 1, {}, {}, 1), Ids({15}));
}

TEST(PathCounter, NeverNamesAnExpertTwice) {
  const PathTable untaught = PathCounter(kShape).Learn();
  EXPECT_EQ(untaught.keys(), 0U);
  for (const PathTable& table : {LearnPlanted(), untaught}) {
    for (uint16_t a = 0; a < 16; ++a) {
      for (size_t layer = 1; layer < kShape.n_layer; ++layer) {
        const auto last = Ids({a, static_cast<uint16_t>((a + 7) % 16)});
        EXPECT_EQ(AsSet(Rank(table, layer, last, last, 16)).size(), 16U);
      }
    }
  }
}

TEST(PathCounter, ModelsThatUseOneOrAllExpertsWork) {
  for (const MoeShape shape : {MoeShape{.n_layer = 3, .n_expert = 4, .n_used = 1},
                               MoeShape{.n_layer = 3, .n_expert = 2, .n_used = 2},
                               MoeShape{.n_layer = 3, .n_expert = 1, .n_used = 1},
                               MoeShape{.n_layer = 1, .n_expert = 4, .n_used = 2}}) {
    PathCounter counter(shape);
    for (uint32_t t = 0; t < 20; ++t) {
      std::vector<ExpertId> token;
      for (uint32_t l = 0; l < shape.n_layer; ++l) {
        for (uint32_t k = 0; k < shape.n_used; ++k) {
          token.push_back({static_cast<uint16_t>((t + l + k) % shape.n_expert)});
        }
      }
      counter.Add(token);
    }
    const PathTable table = counter.Learn();
    if (shape.n_layer < 3) continue;
    for (uint16_t e = 0; e < shape.n_expert && shape.n_used == 1; ++e) {
      const auto next = static_cast<uint16_t>((e + 1) % shape.n_expert);
      const auto after = static_cast<uint16_t>((e + 2) % shape.n_expert);
      EXPECT_EQ(Rank(table, 2, Ids({next}), Ids({e}), 1), Ids({after}));
    }
  }
}

// So many paths that not all can be kept.
TEST(PathCounter, KeepsAtMostWhatItPromises) {
  constexpr MoeShape kWide{.n_layer = 3, .n_expert = 128, .n_used = 8};
  PathCounter counter(kWide);
  for (uint32_t t = 0; t < 2000; ++t) {
    std::vector<ExpertId> token;
    for (uint32_t l = 0; l < kWide.n_layer; ++l) {
      for (uint32_t k = 0; k < kWide.n_used; ++k) {
        token.push_back({static_cast<uint16_t>((t * (l + 3) + k * (17 + t % 5) + l) % 128)});
      }
    }
    counter.Add(token);
  }
  const PathTable table = counter.Learn();
  for (const PathLayer& layer : table.layers()) {
    EXPECT_LE(layer.keys.size(), PathCounter::kMaxPairs + kWide.n_expert);
  }
  EXPECT_GT(table.layers()[2].keys.size(), 256U);
  EXPECT_LT(table.bytes(), 400'000U);
}

TEST(PathCounter, RefusesRowsThatBreakThePromises) {
  const PathTable good = LearnPlanted();
  const std::vector<PathLayer> layers(good.layers().begin(), good.layers().end());
  ASSERT_EQ(PathTable::Create(kShape, layers), good);
  const std::vector<std::pair<const char*, std::function<void(PathLayer&)>>> mistakes = {
      {"no popularity", [](PathLayer& l) { l.popularity.pop_back(); }},
      {"popularity of 0", [](PathLayer& l) { l.popularity[3] = 0; }},
      {"no ends", [](PathLayer& l) { l.ends.clear(); }},
      {"an end too low", [](PathLayer& l) { l.ends[1] = 0; }},
      {"an end too high", [](PathLayer& l) { l.ends[0] = 5000; }},
      {"a follower too many", [](PathLayer& l) { l.followers.push_back({}); }},
      {"a follower out of range", [](PathLayer& l) { l.followers[0].expert = {16}; }},
      {"a follower twice", [](PathLayer& l) { l.followers[1].expert = l.followers[0].expert; }},
      {"a follower of no probability", [](PathLayer& l) { l.followers[0].share = 0; }},
      {"no order", [](PathLayer& l) { l.followers[1].share = 65535; }},
      {"a key twice", [](PathLayer& l) { l.keys[1] = l.keys[0]; }},
      {"a key out of range", [](PathLayer& l) { l.keys.back().last = {16}; }},
      {"an earlier one out of range", [](PathLayer& l) { l.keys.back().earlier = 17; }}};
  for (const auto& [what, damage] : mistakes) {
    std::vector<PathLayer> bad = layers;
    damage(bad[2]);
    const auto table = PathTable::Create(kShape, std::move(bad));
    ASSERT_FALSE(table) << what;
    EXPECT_TRUE(table.error().message.starts_with("layer 2: ")) << table.error().message;
  }
  EXPECT_FALSE(PathTable::Create({.n_layer = 5, .n_expert = 16, .n_used = 2}, layers));
  EXPECT_FALSE(PathTable::Create({.n_layer = 6, .n_expert = 16, .n_used = 17}, layers));
  EXPECT_FALSE(PathTable::Create({.n_layer = 0, .n_expert = 16, .n_used = 1}, {}));
}

}  // namespace
}  // namespace moestro
