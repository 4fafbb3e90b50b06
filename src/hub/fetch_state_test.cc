// SPDX-License-Identifier: MIT
#include "hub/fetch_state.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

FetchState Some() {
  FetchState state{.repo = "o/r",
                   .commit = std::string(40, 'a'),
                   .file = "a/m.gguf",
                   .etag = std::string(64, 'b'),
                   .size = 1000,
                   .content_etag = "\"x\""};
  state.done.Add({0, 10});
  state.done.Add({20, 1000});
  return state;
}

// The text with `from` replaced by `to`.
bool IsTaken(const std::string& from, const std::string& to) {
  std::string text = StateText(Some());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return ParseState(text).has_value();
}

TEST(FetchStateTest, IsReadBack) {
  const auto state = ParseState(StateText(Some()));
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(*state, Some());
}

TEST(FetchStateTest, TheTextIsAsDocumented) {
  EXPECT_EQ(StateText(Some()), R"({"format":1,"repo":"o/r","commit":")" + std::string(40, 'a') +
                                   R"(","file":"a/m.gguf","etag":")" + std::string(64, 'b') +
                                   R"(","size":1000,"content_etag":"\"x\"",)" +
                                   R"("done":[[0,10],[20,1000]]})" + "\n");
}

TEST(FetchStateTest, DamagedTextsAreRefused) {
  EXPECT_TRUE(IsTaken("1000,", "1000,"));
  EXPECT_FALSE(IsTaken("\"format\":1", "\"format\":2"));
  EXPECT_FALSE(IsTaken("\"size\":1000", "\"size\":999"));
  EXPECT_FALSE(IsTaken("\"size\":1000", "\"size\":-1"));
  EXPECT_FALSE(IsTaken("\"size\":1000", "\"size\":9223372036854775808"));
  EXPECT_FALSE(IsTaken("[20,1000]", "[20,1001]"));
  EXPECT_FALSE(IsTaken("[20,1000]", "[5,1000]"));
  EXPECT_FALSE(IsTaken("[20,1000]", "[20,20]"));
  EXPECT_FALSE(IsTaken("[20,1000]", "[1000,20]"));
  EXPECT_FALSE(IsTaken("[20,1000]", "7"));
  EXPECT_FALSE(IsTaken("[20,1000]", "[-1,7]"));
  EXPECT_FALSE(IsTaken("a/m.gguf", "../m.gguf"));
  EXPECT_FALSE(IsTaken("o/r", "o"));
  EXPECT_FALSE(ParseState(""));
  EXPECT_FALSE(ParseState(std::string(100'000, '[')));
  EXPECT_FALSE(ParseState(std::string(kMostStateBytes + 1, ' ')));
  for (size_t n = 0; n < StateText(Some()).size() - 2; ++n) {
    EXPECT_FALSE(ParseState(StateText(Some()).substr(0, n))) << n;
  }
}

// It would go into a header.
TEST(FetchStateTest, AContentEtagThatIsNoneIsForgotten) {
  FetchState state = Some();
  state.content_etag = "\"x\"\r\nX-Evil: 1\"";
  EXPECT_EQ(ParseState(StateText(state))->content_etag, "");
}

TEST(FetchStateTest, AnotherContentIsNotGoneOnWith) {
  FetchState other = Some();
  other.commit = std::string(40, 'c');  // the same content in a newer commit
  EXPECT_TRUE(MayGoOn(Some(), other));
  other.size = 999;
  EXPECT_FALSE(MayGoOn(Some(), other));
  other = Some();
  other.etag = std::string(64, 'c');
  EXPECT_FALSE(MayGoOn(Some(), other));
}

}  // namespace
}  // namespace moestro
