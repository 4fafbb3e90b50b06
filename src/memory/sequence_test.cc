// SPDX-License-Identifier: MIT
// Positions and places of states, without any values.
#include "memory/sequence.h"

#include <gtest/gtest.h>

#include <vector>

namespace moestro {
namespace {

std::vector<Token> Tokens(size_t n) { return std::vector<Token>(n, 1); }

// A step of n tokens that succeeds.
void Go(SequenceTable& table, SequenceId id, size_t n) {
  ASSERT_TRUE(table.Append(id, Tokens(n)));
  table.Commit(id);
}

TEST(SequenceTable, WithoutStatesEveryPositionIsReached) {
  SequenceTable table(8, 0);
  const SequenceId id = table.New();
  Go(table, id, 20);
  EXPECT_EQ(table.Reach(id, 13), 13U);
  table.CutBack(id, 13);
  EXPECT_EQ(table.Find(id)->tokens.size(), 13U);
  EXPECT_FALSE(table.Find(id)->state);
}

TEST(SequenceTable, AStepThatIsNotCommittedLeavesTheState) {
  SequenceTable table(8, 3);
  const SequenceId id = table.New();
  Go(table, id, 5);
  const StateSlot before = table.Find(id)->state->state;
  ASSERT_TRUE(table.Append(id, Tokens(2)));
  ASSERT_TRUE(table.Append(id, Tokens(1)));
  EXPECT_NE(table.Find(id)->next->value, before.value);
  table.CutBack(id, 7);
  table.CutBack(id, 5);
  EXPECT_FALSE(table.Find(id)->next);
  EXPECT_EQ(table.Find(id)->state->state, before);
  EXPECT_EQ(table.states().free(), 2U);
}

TEST(SequenceTable, StatesAreGivenBackWithTheirLastUser) {
  SequenceTable table(16, 6);
  const SequenceId first = table.New();
  Go(table, first, 5);
  table.Keep(first);
  Go(table, first, 3);
  const SequenceId second = table.Fork(first);
  EXPECT_EQ(table.states().free(), 4U);  // a state and a checkpoint, both shared
  table.Drop(first);
  EXPECT_EQ(table.states().free(), 4U);
  EXPECT_EQ(table.Reach(second, 7), 5U);
  table.CutBack(second, 5);
  EXPECT_EQ(table.states().free(), 5U);
  table.Drop(second);
  EXPECT_EQ(table.states().free(), 6U);
}

TEST(SequenceTable, AForkReachesWhatItsOriginDoes) {
  SequenceTable table(16, 6);
  const SequenceId first = table.New();
  Go(table, first, 5);
  Go(table, first, 3);
  const SequenceId second = table.Fork(first);
  EXPECT_EQ(table.Reach(second, 7), 5U);
  EXPECT_EQ(table.states().free(), 4U);  // two states, both shared
  table.Drop(first);
  table.CutBack(second, 5);
  EXPECT_EQ(table.states().free(), 5U);
  Go(table, second, 1);
  table.Drop(second);
  EXPECT_EQ(table.states().free(), 6U);
}

TEST(SequenceTable, CheckpointsGoWhenPlacesRunOut) {
  SequenceTable table(16, 4);
  const SequenceId kept = table.New();
  for (int i = 0; i < 3; ++i) {
    Go(table, kept, 4);
    table.Keep(kept);
  }
  EXPECT_EQ(table.Reach(kept, 7), 4U);
  const SequenceId other = table.New();
  Go(table, other, 1);  // takes the last free place
  Go(table, other, 1);
  EXPECT_EQ(table.Reach(kept, 7), 0U) << "the first checkpoint went";
  EXPECT_EQ(table.Reach(kept, 12), 12U);
  const SequenceId third = table.New();
  Go(table, third, 1);
  const SequenceId fourth = table.New();
  const Status full = table.Append(fourth, Tokens(1));
  if (full) table.Commit(fourth);
  const SequenceId fifth = table.New();
  EXPECT_EQ(table.Append(fifth, Tokens(1)).error().code, Errc::kInvalidRequest);
  EXPECT_TRUE(table.Find(fifth)->tokens.empty());
  table.Drop(third);
  EXPECT_TRUE(table.Append(fifth, Tokens(1)));
}

// A server goes by it. Counted as taken, these places once stopped all texts for good.
TEST(SequenceTable, PlacesOfCheckpointsAreAvailable) {
  SequenceTable table(16, 6);
  const auto write = [&](SequenceId id, Token token) {
    EXPECT_TRUE(table.Append(id, {&token, 1}));
    table.Commit(id);
  };
  const SequenceId one = table.New();
  const SequenceId other = table.New();
  for (Token token = 0; token < 9; ++token) {
    for (const SequenceId id : {one, other}) {
      write(id, token);
      table.Keep(id);
      EXPECT_EQ(table.available_states(), id == one && token == 0 ? 5U : 4U);
    }
  }
  EXPECT_EQ(table.states().free(), 0U);
  const SequenceId fork = table.Fork(one);
  EXPECT_EQ(table.available_states(), 4U);  // both sequences share a state
  table.Drop(one);
  EXPECT_EQ(table.available_states(), 4U);
  table.Drop(fork);
  EXPECT_EQ(table.available_states(), 5U);
}

// Rows after a kept position write to another place.
TEST(SequenceTable, PositionsWithinAStepAreKept) {
  SequenceTable table(16, 6);
  const SequenceId id = table.New();
  Go(table, id, 3);
  const StateSlot before = table.Find(id)->state->state;
  for (uint32_t position = 4; position <= 8; ++position) {
    ASSERT_TRUE(table.Append(id, Tokens(1)));
    if (position == 5 || position == 8) table.KeepInStep(id);
  }
  const auto [first_from, first_to] = table.PlacesOf(id, 3);
  EXPECT_EQ(first_from, before);
  const auto [second_from, second_to] = table.PlacesOf(id, 4);
  EXPECT_EQ(second_from, first_to);
  EXPECT_EQ(second_to, first_to);
  const auto [third_from, third_to] = table.PlacesOf(id, 5);
  EXPECT_EQ(third_from, first_to);
  EXPECT_NE(third_to, first_to);
  EXPECT_EQ(table.PlacesOf(id, 7).from, third_to);
  EXPECT_EQ(table.PlacesOf(id, 7).to, third_to);
  table.Commit(id);
  EXPECT_EQ(table.Find(id)->state->state, third_to);
  EXPECT_EQ(table.Reach(id, 7), 5U);
  Go(table, id, 1);
  Go(table, id, 1);
  EXPECT_EQ(table.Reach(id, 8), 8U) << "the last row of a step";
  table.CutBack(id, 5);
  EXPECT_EQ(table.Find(id)->state->state, first_to);
  table.Drop(id);
  EXPECT_EQ(table.states().free(), 6U);
}

TEST(SequenceTable, AStepThatFailsKeepsNothing) {
  SequenceTable table(16, 6);
  const SequenceId id = table.New();
  Go(table, id, 3);
  const uint32_t free = table.states().free();
  for (uint32_t position = 4; position <= 9; ++position) {
    ASSERT_TRUE(table.Append(id, Tokens(1)));
    if (position % 2 == 0) table.KeepInStep(id);
  }
  EXPECT_LT(table.states().free(), free);
  for (uint32_t position = 9; position-- > 3;) table.CutBack(id, position);
  EXPECT_EQ(table.states().free(), free);
  EXPECT_EQ(table.Reach(id, 3), 3U);
  Go(table, id, 4);
  EXPECT_EQ(table.Reach(id, 6), 3U) << "the state before the step";
}

// A checkpoint is worth the tokens since the checkpoint before.
TEST(SequenceTable, TheCheckpointThatIsWorthLeastGoesFirst) {
  SequenceTable table(32, 5);
  const SequenceId id = table.New();
  for (const size_t n : {20U, 3U, 9U}) {
    Go(table, id, n);
    table.Keep(id);
  }
  Go(table, id, 1);
  Go(table, id, 1);
  EXPECT_EQ(table.Reach(id, 31), 23U) << "all are there";
  const SequenceId other = table.New();
  Go(table, other, 1);
  EXPECT_EQ(table.Reach(id, 31), 23U) << "the state before the last step went";
  Go(table, other, 1);
  EXPECT_EQ(table.Reach(id, 31), 20U) << "three tokens were worth least";
  EXPECT_EQ(table.Reach(id, 32), 32U);
  // A position that is worth less than all kept positions is not kept.
  ASSERT_TRUE(table.Append(other, Tokens(1)));
  table.KeepInStep(other);
  ASSERT_TRUE(table.Append(other, Tokens(1)));
  table.Commit(other);
  EXPECT_EQ(table.Reach(other, 3), 2U);
  EXPECT_EQ(table.Reach(id, 32), 32U);
}

// The last state of a resting sequence is worth the tokens since its last checkpoint.
TEST(SequenceTable, ARestingSequenceIsCutBackWhenPlacesRunOut) {
  SequenceTable table(32, 4);
  const SequenceId resting = table.New();
  Go(table, resting, 20);
  table.Keep(resting);
  Go(table, resting, 2);
  EXPECT_EQ(table.available_states(), 3U);
  table.Rest(resting);
  EXPECT_EQ(table.available_states(), 4U);
  const SequenceId fork = table.Fork(resting);
  EXPECT_EQ(table.available_states(), 3U) << "the fork does not rest";
  table.Drop(fork);
  const SequenceId other = table.New();
  Go(table, other, 1);
  Go(table, other, 1);
  EXPECT_EQ(table.Find(resting)->tokens.size(), 22U);
  const SequenceId third = table.New();
  Go(table, third, 1);
  EXPECT_EQ(table.Find(resting)->tokens.size(), 22U) << "the state before another's last step went";
  Go(table, third, 1);
  EXPECT_EQ(table.Find(resting)->tokens.size(), 20U);
  const SequenceId fourth = table.New();
  Go(table, fourth, 1);
  Go(table, fourth, 1);
  EXPECT_TRUE(table.Find(resting)->tokens.empty());
  Go(table, resting, 1);
  EXPECT_EQ(table.available_states(), 0U) << "it goes on";
}

// More texts with tokens than places: the resting texts share one place. When all states are lost,
// each text would take a place of its own to be computed again.
TEST(SequenceTable, TextsThatRestGiveWayWhenAllIsComputedAgain) {
  SequenceTable table(64, 6);
  const SequenceId first = table.New();
  Go(table, first, 9);
  table.Keep(first);
  std::vector<SequenceId> ids = {first};
  for (int i = 0; i < 4; ++i) ids.push_back(table.Fork(first));
  for (const SequenceId id : ids) table.Rest(id);
  const SequenceId one = table.Fork(first);
  const SequenceId other = table.Fork(first);
  for (int i = 0; i < 2; ++i) {
    Go(table, one, 1);
    Go(table, other, 1);
  }
  table.LoseStates();
  for (const SequenceId id : table.ids()) {
    ASSERT_TRUE(table.Append(id, {})) << id.value;
    table.Commit(id);
  }
  EXPECT_EQ(table.Find(one)->committed(), 11U);
  EXPECT_EQ(table.Find(other)->committed(), 11U);
  EXPECT_GE(table.available_states(), 2U) << "those that rest still do";
}

// A place that is kept within a step is one less for others' steps.
TEST(SequenceTable, NothingIsKeptFromPlacesThatOthersNeed) {
  SequenceTable table(64, 5);
  const SequenceId one = table.New();
  const SequenceId other = table.New();
  Go(table, one, 1);
  Go(table, other, 1);
  ASSERT_TRUE(table.Append(one, Tokens(50)));
  table.KeepInStep(one);
  ASSERT_TRUE(table.Append(one, Tokens(50)));
  table.KeepInStep(one);
  ASSERT_TRUE(table.Append(one, Tokens(50)));
  EXPECT_EQ(table.Find(one)->passed.size(), 1U);
  EXPECT_TRUE(table.Append(other, Tokens(1)));
  table.Commit(one);
  table.Commit(other);
  EXPECT_EQ(table.Reach(one, 150), 51U);
}

// A draft goes back to the last checkpoint at once.
TEST(SequenceTable, TheLastCheckpointOfATextThatRunsStays) {
  SequenceTable table(64, 3);
  const SequenceId id = table.New();
  Go(table, id, 40);
  table.Keep(id);
  Go(table, id, 1);
  table.Keep(id);
  for (int i = 0; i < 3; ++i) Go(table, id, 1);
  EXPECT_EQ(table.Reach(id, 42), 41U);
}

TEST(SequenceTable, LostStatesAreComputedAgainFromTheTokens) {
  SequenceTable table(8, 4);
  const SequenceId id = table.New();
  Go(table, id, 5);
  table.Keep(id);
  Go(table, id, 1);
  table.LoseStates();
  EXPECT_EQ(table.states().free(), 4U);
  EXPECT_EQ(table.Find(id)->committed(), 0U);
  ASSERT_TRUE(table.Append(id, {}));
  table.Commit(id);
  EXPECT_EQ(table.Find(id)->committed(), 6U);
  EXPECT_EQ(table.Reach(id, 5), 0U);
}

}  // namespace
}  // namespace moestro
