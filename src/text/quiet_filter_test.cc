// SPDX-License-Identifier: MIT
#include "text/quiet_filter.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar_state.h"
#include "tests/support/demo_vocab_testing.h"

namespace moestro {
namespace {

// The text with each letter that the watch reports as quiet in ().
std::string Watch(const QuietText& marks, std::string_view text) {
  QuietWatch watch(marks);
  std::string said;
  for (const char c : text) {
    const std::string one(1, c);
    said += watch.Push(one) ? one : "(" + one + ")";
  }
  return said;
}

TEST(QuietWatch, APartBeginsAtTheStartOnlyAndEndsOnce) {
  const QuietText marks{.begin = "[", .end = "]>"};
  EXPECT_EQ(Watch(marks, " \n[ab]>c[d]>"), " \n[(a)(b)(])>c[d]>");
  EXPECT_EQ(Watch(marks, "a[b]>"), "a[b]>");
  EXPECT_EQ(Watch(marks, "[a]]]>b"), "[(a)(])(])(])>b");
  EXPECT_EQ(Watch(marks, "[never"), "[(n)(e)(v)(e)(r)");
}

TEST(QuietWatch, APartMayBeOpenAtTheStart) {
  const QuietText marks{.begin = "[", .end = "]", .is_open = true};
  EXPECT_EQ(Watch(marks, "a[b]c[d]"), "(a)([)(b)]c[d]");
}

TEST(QuietWatch, PartsMayBeAnywhere) {
  const QuietText marks{.begin = "<<", .end = ">", .is_anywhere = true};
  EXPECT_EQ(Watch(marks, "a<<b>c<<<d>e"), "a<<(b)>c<<(<)(d)>e");
}

TEST(QuietWatch, OneTokenMayHoldSeveralMarks) {
  QuietWatch watch({.begin = "<<", .end = ">", .is_anywhere = true});
  EXPECT_TRUE(watch.Push("a<<b>c<<"));
  EXPECT_FALSE(watch.Push("b"));
  EXPECT_TRUE(watch.Push(">c<<d"));
  EXPECT_FALSE(watch.Push("d"));
  watch.Restart();
  EXPECT_TRUE(watch.Push("d"));
}

TEST(QuietWatch, WithoutMarksNothingIsQuiet) { EXPECT_EQ(Watch({}, "a[b]"), "a[b]"); }

// True if the filter takes all tokens of the text.
bool TakesAll(TokenFilter& filter, std::string_view text) {
  filter.Restart();
  for (const Token token : *DemoVocab().Tokenize(text, false, false)) {
    if (!*filter.Take(token)) return false;
  }
  return true;
}

TEST(QuietFilter, AGrammarSleepsWhileTheModelThinks) {
  const auto grammar = [] {
    return GrammarState::Make({"root ::= \"big\" \" dog\"", {"big"}}, DemoVocab());
  };
  EXPECT_FALSE(TakesAll(*grammar(), "A big cat. A big dog"));
  QuietFilter filter(grammar(), {.begin = "A", .end = "."}, DemoVocab());
  EXPECT_TRUE(TakesAll(filter, "A big cat. A big dog"));
  EXPECT_FALSE(TakesAll(filter, "A big cat. A big cat"));
  EXPECT_FALSE(TakesAll(filter, "The big cat."));
  // A refused token changes nothing.
  filter.Restart();
  const Token bird = DemoVocab().Tokenize("bird", false, false)->front();
  for (const Token token : *DemoVocab().Tokenize("A big cat. A big", false, false)) {
    ASSERT_TRUE(*filter.Take(token));
  }
  EXPECT_FALSE(*filter.Take(bird));
  EXPECT_FALSE(filter.Allowed(DemoVocab().size())->at(static_cast<size_t>(bird)));
  for (const Token token : *DemoVocab().Tokenize(" dog", false, false)) {
    EXPECT_TRUE(*filter.Take(token));
  }
}

}  // namespace
}  // namespace moestro
