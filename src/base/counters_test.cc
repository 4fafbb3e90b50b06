// SPDX-License-Identifier: MIT
#include "base/counters.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "base/json.h"

namespace moestro {
namespace {

struct Eaten {
  uint64_t apples = 0;
  double seconds = 0.0;

  static constexpr void Visit(auto&& visit) {
    visit(&Eaten::apples, CounterText{.json = "apples"});
    visit(&Eaten::seconds, CounterText{});
  }
};
static_assert(CountsAllOf<Eaten>());

struct Fruit {
  uint64_t apples = 0;
  uint64_t bad = 0;
  Eaten eaten = {};

  double bad_share() const { return Share(bad, apples); }

  static constexpr void Visit(auto&& visit) {
    visit(&Fruit::apples, CounterText{.json = "apples", .prefill = "green_apples"});
    visit(&Fruit::bad, CounterText{.json = "bad"});
    visit(&Fruit::bad_share, CounterText{.json = "bad_share"});
    visit(&Fruit::eaten, CounterText{.json = "eaten_"});
  }
};
static_assert(CountsAllOf<Fruit>());

struct Forgetful {
  uint64_t listed = 0;
  uint64_t forgotten = 0;
  static constexpr void Visit(auto&& visit) { visit(&Forgetful::listed, CounterText{}); }
};
static_assert(!CountsAllOf<Forgetful>());

TEST(Counters, DifferencesAndSumsTakeEveryRow) {
  const Fruit before{.apples = 3, .bad = 1, .eaten = {.apples = 1, .seconds = 0.5}};
  const Fruit now{.apples = 10, .bad = 2, .eaten = {.apples = 4, .seconds = 2.0}};
  const Fruit did = now - before;
  EXPECT_EQ(did.apples, 7U);
  EXPECT_EQ(did.bad, 1U);
  EXPECT_EQ(did.eaten.apples, 3U);
  EXPECT_EQ(did.eaten.seconds, 1.5);
  Fruit sum = before;
  sum += did;
  EXPECT_EQ(sum.apples, now.apples);
  EXPECT_EQ(sum.bad, now.bad);
  EXPECT_EQ(sum.eaten.apples, now.eaten.apples);
  EXPECT_EQ(sum.eaten.seconds, now.eaten.seconds);
}

TEST(Counters, JsonHasTheNamedRowsInTheirOrder) {
  const Fruit fruit{.apples = 4, .bad = 1, .eaten = {.apples = 2, .seconds = 9.0}};
  Json object = Json::Object();
  AddCounters(object, fruit);
  EXPECT_EQ(object.Dump(), R"({"apples":4,"bad":1,"bad_share":0.25,"eaten_apples":2})");
  Json green = Json::Object();
  AddCounters(green, fruit, &CounterText::prefill);
  EXPECT_EQ(green.Dump(), R"({"green_apples":4})");
}

}  // namespace
}  // namespace moestro
