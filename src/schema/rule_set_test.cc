// SPDX-License-Identifier: MIT
#include "schema/rule_set.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(CharSet, JoinsAndTurnsRangesAround) {
  const CharSet set({{'c', 'd'}, {'a', 'b'}, {'x', 'x'}});
  ASSERT_EQ(set.ranges().size(), 2U);
  EXPECT_EQ(set.ranges()[0].last, 'd');
  const CharSet others = set.Complement();
  EXPECT_FALSE(others.Has('c'));
  EXPECT_TRUE(others.Has('e'));
  EXPECT_TRUE(others.Has(0));
  EXPECT_TRUE(others.Has(0x10FFFF));
  EXPECT_FALSE(others.Has(0xD800)) << "no character";
  EXPECT_TRUE(CharSet::All().Complement().is_empty());
}

TEST(CharSet, EscapesWhatJsonEscapes) {
  EXPECT_EQ(CharSet({{'a', 'c'}}).InJsonString(), "[a-c]");
  EXPECT_EQ(CharSet({{'-', '-'}, {'\"', '\"'}, {'\n', '\n'}}).InJsonString(),
            "[\\x2D] | \"\\\\\" [\\x22n]");
  EXPECT_EQ(CharSet({{0, 1}, {0x1F, 0x1F}}).InJsonString(), "\"\\\\u000\" [01] | \"\\\\u001\" [f]");
  EXPECT_EQ(CharSet({{0xE9, 0xE9}, {0x1F600, 0x1F601}}).InJsonString(),
            "[\\xE9\\U0001F600-\\U0001F601]");
}

std::string Text(const RuleSet& rules, RuleId first) {
  std::string text;
  for (const auto& [name, body] : rules.Named(first, "r")) text += name + " = " + body + "\n";
  return text;
}

TEST(RuleSet, NamesWhatIsReached) {
  RuleSet rules;
  rules.Add(RuleBody().Text("unused"));
  const RuleId x = rules.Add(RuleBody().Text("x\"\n"));
  const RuleId first = rules.Add(RuleBody().Rule(x).Gbnf("json-ws"));
  rules.AddAlternative(first, RuleBody().Gbnf("\"\""));
  EXPECT_EQ(Text(rules, first), "r = r-1 json-ws | \"\"\nr-1 = \"x\\\"\\x0A\"\n");
}

TEST(RuleSet, LeavesOutWhatCannotEnd) {
  RuleSet rules;
  const RuleId nothing = rules.Add();
  const RuleId endless = rules.Add();
  rules.AddAlternative(endless, RuleBody().Text("a").Rule(endless));
  const RuleId first = rules.Add(RuleBody().Rule(nothing));
  EXPECT_EQ(Text(rules, first), "");
  rules.AddAlternative(first, RuleBody().Rule(endless));
  EXPECT_EQ(Text(rules, first), "");
  rules.AddAlternative(first, RuleBody().Text("b"));
  EXPECT_EQ(Text(rules, first), "r = \"b\"\n");
  EXPECT_EQ(Text(rules, rules.Repeated(nothing, {0, 3})), "r = \"\"\n");
  EXPECT_EQ(Text(rules, rules.Repeated(nothing, {1, 3})), "");
}

TEST(RuleSet, LargeCountsTakeFewCopies) {
  RuleSet rules;
  const RuleId x = rules.Add(RuleBody().Text("x"));
  EXPECT_EQ(Text(rules, rules.Repeated(x, {2, 5})), "r = r-1{2,5}\nr-1 = \"x\"\n");
  const std::string text = Text(rules, rules.Repeated(x, {0, RuleSet::kMostTimes}));
  for (const char* count : {"{317", "{400", "{999", "{1000"}) {
    EXPECT_EQ(text.find(count), std::string::npos) << text;
  }
  EXPECT_EQ(rules.Repeated(x, {2, 5}), rules.Repeated(x, {2, 5}));
}

}  // namespace
}  // namespace moestro
