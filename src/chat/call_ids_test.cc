// SPDX-License-Identifier: MIT
#include "chat/call_ids.h"

#include <gtest/gtest.h>

#include <set>

#include "base/format.h"

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

// One whose short form another client's id has already.
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
