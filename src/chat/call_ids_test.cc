// SPDX-License-Identifier: MIT
#include "chat/call_ids.h"

#include <gtest/gtest.h>

#include <set>

#include "base/text.h"

namespace moestro {
namespace {

ChatTurn Call(std::vector<std::string> ids) {
  ChatTurn turn;
  turn.role = "assistant";
  for (std::string& id : ids) {
    turn.calls.push_back({.id = std::move(id), .name = "f", .arguments = "{}"});
  }
  return turn;
}

ChatTurn Answer(std::string id) {
  ChatTurn turn;
  turn.role = "tool";
  turn.call_id = std::move(id);
  return turn;
}

TEST(CallIds, LongOnesBecomeShortAndStayApart) {
  std::vector<ChatTurn> turns{Call({"call_0123456789", "abcdefghi", "toolu_1"}), Answer("toolu_1"),
                              Answer("call_0123456789"), Answer("abcdefghi"),
                              Answer("call_unknown")};
  ShortenIds(turns);
  const std::string& first = turns[0].calls[0].id;
  EXPECT_TRUE(IsShortId(first)) << first;
  EXPECT_EQ(turns[0].calls[1].id, "abcdefghi");
  EXPECT_EQ(turns[1].call_id, turns[0].calls[2].id);
  EXPECT_EQ(turns[2].call_id, first);
  EXPECT_EQ(turns[3].call_id, "abcdefghi");
  EXPECT_TRUE(IsShortId(turns[4].call_id));
  EXPECT_NE(first, turns[1].call_id);
}

TEST(CallIds, WithoutIdsAnswersGoInTheOrderOfCalls) {
  std::vector<ChatTurn> turns{Call({"", ""}), Answer(""), Answer(""), Answer("")};
  ShortenIds(turns);
  EXPECT_EQ(turns[1].call_id, turns[0].calls[0].id);
  EXPECT_EQ(turns[2].call_id, turns[0].calls[1].id);
  EXPECT_NE(turns[1].call_id, turns[2].call_id);
  EXPECT_TRUE(IsShortId(turns[3].call_id));
}

// An id whose short form is already another client's id.
TEST(CallIds, NoShortFormIsTakenTwice) {
  std::vector<ChatTurn> turns{Call({"call_x"})};
  ShortenIds(turns);
  const std::string taken = turns[0].calls[0].id;
  turns = {Call({"call_x", taken})};
  ShortenIds(turns);
  EXPECT_EQ(turns[0].calls[1].id, taken);
  EXPECT_NE(turns[0].calls[0].id, taken);
  EXPECT_TRUE(IsShortId(turns[0].calls[0].id));
}

// Ids for Kimi's templates, which name a result's tool in no other way.
TEST(CallIds, NumberedOnesSayTheirTool) {
  std::vector<ChatTurn> turns{Call({"call_7", "functions.f:0"}),
                              Answer("functions.f:0"),
                              Answer("call_7"),
                              Call({"functions.g:1", "functions.f:12345678901234567890"}),
                              Answer("functions.g:1"),
                              Answer("unknown")};
  turns[5].name = "g";
  const std::vector<ChatTurn> before(turns.begin(), turns.begin() + 3);
  NumberIds(turns, "functions.");
  EXPECT_EQ(turns[0].calls[0].id, "functions.f:0");
  EXPECT_EQ(turns[0].calls[1].id, "functions.f:1") << "taken by the one before it";
  EXPECT_EQ(turns[1].call_id, "functions.f:1");
  EXPECT_EQ(turns[2].call_id, "functions.f:0");
  EXPECT_EQ(turns[3].calls[0].id, "functions.f:2") << "of another tool";
  EXPECT_EQ(turns[3].calls[1].id, "functions.f:3") << "more digits than a number has";
  EXPECT_EQ(turns[4].call_id, "functions.f:2");
  EXPECT_EQ(turns[5].call_id, "functions.g:4");
  // A further turn changes no earlier ids.
  std::vector<ChatTurn> fewer = before;
  NumberIds(fewer, "functions.");
  for (size_t i = 0; i < fewer.size(); ++i) EXPECT_EQ(fewer[i].call_id, turns[i].call_id);
  EXPECT_EQ(fewer[0].calls[0].id, turns[0].calls[0].id);
}

TEST(CallIds, WithoutIdsAnswersGetTheNumbersOfCallsInTheirOrder) {
  std::vector<ChatTurn> turns{Call({"", ""}), Answer(""), Answer(""), Answer("")};
  NumberIds(turns, "functions.");
  EXPECT_EQ(turns[1].call_id, "functions.f:0");
  EXPECT_EQ(turns[2].call_id, "functions.f:1");
  EXPECT_EQ(turns[3].call_id, "");
}

TEST(CallIds, MadeOnesAreUnique) {
  std::set<std::string> made;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (const uint32_t call : {0U, 1U, 2U}) {
      EXPECT_TRUE(IsShortId(MakeCallId(seed, call, true)));
      made.insert(MakeCallId(seed, call, true));
      made.insert(MakeCallId(seed, call, false));
    }
  }
  EXPECT_EQ(made.size(), 600U);
}

}  // namespace
}  // namespace moestro
