// SPDX-License-Identifier: MIT
#include "decide/slots/policies/policies.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "decide/slots/policies/pins_testing.h"
#include "decide/slots/policies/ranked_policy.h"
#include "decide/slots/policy.h"
#include "decide/slots/slot_table.h"

namespace moestro {
namespace {

ExpertKey Key(uint16_t layer, uint16_t expert) { return {.layer = {layer}, .expert = {expert}}; }

std::unique_ptr<Policy> Make(const std::string& text, const PolicyShape& shape) {
  const auto choice = ParsePolicyChoice(text);
  EXPECT_TRUE(choice) << choice.error().message;
  auto policy = MakePolicy(*choice);
  EXPECT_TRUE(policy);
  (*policy)->Reset(shape);
  return std::move(*policy);
}

TEST(LayerRanking, AgreesWithASearchThroughEverything) {
  constexpr uint32_t kSlots = 40;
  constexpr uint32_t kLayers = 5;
  std::mt19937 random(1);
  LayerRanking ranking;
  ranking.Reset(kSlots, kLayers);
  struct Truth {
    bool is_used = false;
    uint16_t layer = 0;
    double rank = 0.0;
    int set_at = 0;
  };
  std::vector<Truth> truth(kSlots);
  for (int step = 0; step < 5000; ++step) {
    const auto i = static_cast<uint32_t>(random() % kSlots);
    Truth& t = truth[i];
    const auto rank = static_cast<double>(random() % 4);  // many ties
    if (!t.is_used) {
      t = {.is_used = true,
           .layer = static_cast<uint16_t>(random() % kLayers),
           .rank = rank,
           .set_at = step};
      ranking.Add(SlotId{i}, ExpertLayerId{t.layer}, rank);
    } else if (random() % 3 == 0) {
      t.is_used = false;
      ranking.Remove(SlotId{i});
    } else {
      t.rank = rank;
      t.set_at = step;
      ranking.Set(SlotId{i}, rank);
    }
    std::set<uint32_t> pinned;
    for (int p = 0; p < 5; ++p) pinned.insert(static_cast<uint32_t>(random() % kSlots));
    const auto score = [](ExpertLayerId l, double r) { return r - 2.0 * l.value; };
    std::optional<uint32_t> expected;
    for (uint32_t s = 0; s < kSlots; ++s) {
      if (!truth[s].is_used || pinned.contains(s)) continue;
      if (!expected) {
        expected = s;
        continue;
      }
      const Truth& best = truth[*expected];
      const double a = score(ExpertLayerId{truth[s].layer}, truth[s].rank);
      const double b = score(ExpertLayerId{best.layer}, best.rank);
      if (a < b || (a == b && truth[s].set_at < best.set_at)) expected = s;
    }
    if (expected) {
      EXPECT_EQ(ranking.Lowest(Pins(pinned), score).value, *expected);
    }
  }
}

TEST(Policies, LfuKeepsWhatIsUsedOftenAndLfuSeqForgets) {
  const PolicyShape shape{.slots = 2, .layers = 1, .experts = 4};
  for (const bool forgets : {false, true}) {
    const auto policy = Make(forgets ? "lfu-seq" : "lfu", shape);
    policy->Inserted(SlotId{0}, Key(0, 0), 1);
    policy->Touched(SlotId{0}, 1);
    policy->Touched(SlotId{0}, 1);
    policy->Inserted(SlotId{1}, Key(0, 1), 1);
    EXPECT_EQ(policy->Victim(Pins()).value, 1U);
    policy->SequenceBegun();
    policy->Touched(SlotId{1}, 1);
    EXPECT_EQ(policy->Victim(Pins()).value, forgets ? 0U : 1U);
  }
}

TEST(Policies, LfruForgetsOldFrequency) {
  const auto policy = Make("lfru:half_life=2", {.slots = 2, .layers = 1, .experts = 4});
  policy->LayerBegun(ExpertLayerId{0});
  policy->Inserted(SlotId{0}, Key(0, 0), 1);
  policy->Touched(SlotId{0}, 1);
  policy->Touched(SlotId{0}, 1);
  policy->LayerBegun(ExpertLayerId{0});
  policy->Inserted(SlotId{1}, Key(0, 1), 1);
  EXPECT_EQ(policy->Victim(Pins()).value, 1U);
  for (int token = 0; token < 10; ++token) policy->LayerBegun(ExpertLayerId{0});
  policy->Touched(SlotId{1}, 1);
  EXPECT_EQ(policy->Victim(Pins()).value, 0U);
}

TEST(Policies, LayerDistanceDecides) {
  const PolicyShape shape{.slots = 3, .layers = 3, .experts = 2};
  const auto fill = [](Policy& policy) {
    for (uint16_t l = 0; l < 3; ++l) {
      policy.LayerBegun(ExpertLayerId{l});
      policy.Inserted(SlotId{l}, Key(l, 0), 1);
    }
  };
  const auto fld = Make("fld", shape);
  fill(*fld);
  EXPECT_EQ(fld->Victim(Pins()).value, 2U);  // its layer has just run
  fld->LayerBegun(ExpertLayerId{0});
  EXPECT_EQ(fld->Victim(Pins()).value, 0U);
  const auto edgemoe = Make("edgemoe", shape);
  fill(*edgemoe);
  EXPECT_EQ(edgemoe->Victim(Pins()).value, 2U);
  EXPECT_EQ(edgemoe->Victim(Pins({2})).value, 1U);
  // The paper's distance keeps the current layer's experts longest.
  const auto hobbit = Make("hobbit:w_lru=0,w_lfu=0,w_lhu=0,w_fld=1", shape);
  fill(*hobbit);
  EXPECT_EQ(hobbit->Victim(Pins()).value, 1U);
}

// Layer 0 is an encoder's: a decode step is layers 1 to 3, and what layer 0 used leaves first.
TEST(Policies, AnEncodersLayersAreNoPartOfAStep) {
  const PolicyShape shape{.slots = 4, .layers = 4, .experts = 2, .first_layer = 1};
  const auto fill = [](Policy& policy) {
    policy.Inserted(SlotId{0}, Key(0, 0), 1);
    for (uint16_t l = 1; l < 4; ++l) {
      policy.LayerBegun(ExpertLayerId{l});
      policy.Inserted(SlotId{l}, Key(l, 0), 1);
    }
  };
  const auto edgemoe = Make("edgemoe", shape);
  fill(*edgemoe);
  edgemoe->Touched(SlotId{0}, 50);
  EXPECT_EQ(edgemoe->Victim(Pins({3})).value, 0U);
  const auto fld = Make("fld", shape);
  fill(*fld);
  EXPECT_EQ(fld->Victim(Pins({3})).value, 0U);
  EXPECT_EQ(fld->Victim(Pins({0, 3})).value, 2U);
  fld->LayerBegun(ExpertLayerId{1});
  EXPECT_EQ(fld->Victim(Pins({0})).value, 1U);  // layers 2 and 3 run before it does again
  const auto hobbit = Make("hobbit:w_lru=0,w_lfu=0,w_lhu=0,w_fld=1", shape);
  fill(*hobbit);
  EXPECT_EQ(hobbit->Victim(Pins()).value, 0U);
  // Steps are counted at layer 1.
  const auto lfru = Make("lfru:half_life=1", shape);
  lfru->LayerBegun(ExpertLayerId{1});
  for (int use = 0; use < 3; ++use) lfru->Inserted(SlotId{0}, Key(1, 0), 1);
  for (int step = 0; step < 10; ++step) lfru->LayerBegun(ExpertLayerId{1});
  lfru->Inserted(SlotId{1}, Key(1, 1), 1);
  EXPECT_EQ(lfru->Victim(Pins()).value, 0U);
}

TEST(Policies, HobbitCountsHighPrecisionUseApart) {
  const auto policy =
      Make("hobbit:w_lru=0,w_lfu=0,w_lhu=1,w_fld=0", {.slots = 2, .layers = 1, .experts = 2});
  policy->LayerBegun(ExpertLayerId{0});
  ExpertKey low = Key(0, 0);
  low.copy = 1;
  policy->Inserted(SlotId{0}, low, 1);
  policy->Touched(SlotId{0}, 1);
  policy->Inserted(SlotId{1}, Key(0, 1), 1);
  EXPECT_EQ(policy->Victim(Pins()).value, 0U);
}

// Expert 0 comes back every second token, the others in turn every fourth.
TEST(Policies, NextUseLearnsWhoComesBackSoon) {
  const PolicyShape shape{.slots = 2, .layers = 1, .experts = 3};
  SlotTable table(shape, Make("next-use", shape));
  uint64_t hits_of_regular = 0;
  for (int token = 0; token < 400; ++token) {
    const ExpertKey key = Key(0, token % 2 == 0 ? 0 : static_cast<uint16_t>(1 + token / 2 % 2));
    table.BeginLayer(ExpertLayerId{0});
    const auto placed = table.Request(key, Use::kDecode);
    ASSERT_TRUE(placed);
    if (placed->was == Placement::Was::kAbsent) table.Landed(placed->slot);
    table.Unpin(placed->slot);
    if (key.expert.value == 0 && token >= 40 && placed->was == Placement::Was::kReady) {
      ++hits_of_regular;
    }
  }
  EXPECT_EQ(hits_of_regular, 180U);
}

// A token's working set larger than the cache, again and again: LRU hits nothing.
TEST(Policies, AScanLeavesSomethingBehind) {
  const PolicyShape shape{.slots = 12, .layers = 8, .experts = 8};
  for (const PolicyInfo& info : KnownPolicies()) {
    SlotTable table(shape, Make(std::string(info.name), shape));
    for (int token = 0; token < 50; ++token) {
      for (uint16_t l = 0; l < 8; ++l) {
        table.BeginLayer(ExpertLayerId{l});
        for (uint16_t e = 0; e < 2; ++e) {
          const auto placed = table.Request(Key(l, e), Use::kDecode);
          ASSERT_TRUE(placed);
          if (placed->was == Placement::Was::kAbsent) table.Landed(placed->slot);
          table.Unpin(placed->slot);
        }
      }
    }
    const double rate =
        static_cast<double>(table.stats().hits) / static_cast<double>(table.stats().requests);
    if (info.name == "lru") {
      EXPECT_EQ(rate, 0.0);
    }
    if (info.name == "next-use") {
      EXPECT_GT(rate, 0.4);  // from cold; the limit is below 12 of 16
    }
  }
}

// Random requests, failures and pins: no policy may lose a slot or give up a pinned one (SlotTable
// checks), and the same requests give the same decisions.
TEST(Policies, AllSurviveRandomUseAndAreReproducible) {
  const PolicyShape shape{.slots = 20, .layers = 4, .experts = 16};
  for (const PolicyInfo& info : KnownPolicies()) {
    std::vector<std::vector<uint32_t>> decisions(2);
    for (auto& log : decisions) {
      std::mt19937 random(7);
      SlotTable table(shape, Make(std::string(info.name), shape));
      for (int token = 0; token < 300; ++token) {
        if (token % 70 == 0) table.BeginSequence();
        for (uint16_t l = 0; l < 4; ++l) {
          table.BeginLayer(ExpertLayerId{l});
          std::vector<Placement> held;
          std::set<uint16_t> chosen;
          while (chosen.size() < 3) chosen.insert(static_cast<uint16_t>(random() % 16));
          for (const uint16_t e : chosen) {
            const Use use = token % 9 == 0 ? Use::kPrefill : Use::kDecode;
            const auto placed = table.Request(Key(l, e), use);
            ASSERT_TRUE(placed);
            log.push_back(placed->slot.value);
            held.push_back(*placed);
          }
          for (const Placement& placed : held) {
            if (placed.was == Placement::Was::kAbsent) {
              if (random() % 50 == 0) {
                table.Failed(placed.slot);
              } else {
                table.Landed(placed.slot);
              }
            }
            table.Unpin(placed.slot);
          }
        }
      }
    }
    EXPECT_EQ(decisions[0], decisions[1]) << info.name;
  }
}

TEST(PolicyChoice, SaysWhatIsWrong) {
  const auto message = [](const std::string& text) {
    const auto choice = ParsePolicyChoice(text);
    EXPECT_FALSE(choice) << text;
    return choice ? "" : choice.error().message;
  };
  EXPECT_NE(message("best").find("next-use"), std::string::npos);
  EXPECT_NE(message("hobbit:w_best=1").find("w_lru"), std::string::npos);
  EXPECT_NE(message("hobbit:w_lru=2").find("from 0 to 1"), std::string::npos);
  EXPECT_NE(message("hobbit:w_lru").find("name=number"), std::string::npos);
  EXPECT_NE(message("hobbit:w_lru=nan").find("name=number"), std::string::npos);
  EXPECT_NE(message("lru:x=1").find("none"), std::string::npos);
  const auto choice = ParsePolicyChoice("hobbit:w_lru=0.25,w_fld=0.5");
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->parameters.at("w_fld"), 0.5);
}

ExpertKey Key(uint16_t e) { return {.layer = {0}, .expert = {e}}; }

TEST(Lru, GivesUpTheOldest) {
  LruPolicy lru;
  lru.Reset({.slots = 3});
  for (uint32_t i = 0; i < 3; ++i) lru.Inserted(SlotId{i}, Key(static_cast<uint16_t>(i)), 1);
  EXPECT_EQ(lru.Victim(Pins()).value, 0U);
  lru.Touched(SlotId{0}, 1);
  EXPECT_EQ(lru.Victim(Pins()).value, 1U);
  EXPECT_EQ(lru.Victim(Pins({1})).value, 2U);
  lru.Erased(SlotId{1});
  EXPECT_EQ(lru.Victim(Pins()).value, 2U);
}

TEST(Lru, ResetForgets) {
  LruPolicy lru;
  lru.Reset({.slots = 2});
  lru.Inserted(SlotId{1}, Key(1), 1);
  lru.Reset({.slots = 2});
  lru.Inserted(SlotId{0}, Key(0), 1);
  EXPECT_EQ(lru.Victim(Pins()).value, 0U);
}

TEST(Registry, KnowsItsNamesAndRefusesOthers) {
  for (const PolicyInfo& info : KnownPolicies())
    EXPECT_TRUE(MakePolicy({.name = std::string(info.name)}).has_value()) << info.name;
  const auto unknown = MakePolicy({.name = "mru"});
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, Errc::kUsage);
  EXPECT_NE(unknown.error().message.find("lru"), std::string::npos);
}

}  // namespace
}  // namespace moestro
