// SPDX-License-Identifier: MIT
#include "text/step_planner.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace moestro {
namespace {

using Text = StepPlanner::Text;
using Rows = std::vector<uint32_t>;

Text PromptOf(uint32_t waiting) { return {.is_prompt = true, .waiting = waiting}; }
constexpr Text kWritten{};

TEST(StepPlannerTest, TextsAloneGetARowEach) {
  const StepPlanner planner({.chunk = 64});
  EXPECT_EQ(planner.Plan(std::array{kWritten, kWritten, kWritten}), (Rows{1, 1, 1}));
}

TEST(StepPlannerTest, APromptAloneGetsAWholeChunk) {
  const StepPlanner planner({.chunk = 64});
  EXPECT_EQ(planner.Plan(std::array{PromptOf(100)}), (Rows{64}));
  EXPECT_EQ(planner.Plan(std::array{PromptOf(10)}), (Rows{10}));
}

TEST(StepPlannerTest, TheOldestPromptGetsHalfAndTheShortestTheRest) {
  const StepPlanner planner({.chunk = 64});
  EXPECT_EQ(planner.Plan(std::array{PromptOf(1000), PromptOf(500), PromptOf(10)}),
            (Rows{32, 22, 10}));
}

TEST(StepPlannerTest, WhatShortPromptsLeaveIsTheOldests) {
  const StepPlanner planner({.chunk = 64});
  EXPECT_EQ(planner.Plan(std::array{PromptOf(1000), PromptOf(3), PromptOf(4)}), (Rows{57, 3, 4}));
}

TEST(StepPlannerTest, TextsHaveTheirTurnAfterAPromptsStep) {
  StepPlanner planner({.chunk = 64});
  const std::array texts{kWritten, PromptOf(1000)};
  EXPECT_EQ(planner.Plan(texts)[0], 0U);
  planner.StepDone(planner.Plan(texts)[1], 0.5, true);
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(planner.Plan(texts), (Rows{1, 0})) << step;
    planner.StepDone(0, 0.125, false);
  }
  EXPECT_GT(planner.Plan(texts)[1], 0U);
}

// All weights are in memory: a row costs 10 ms, so a second holds 90 beside the fixed 0.1 s.
TEST(StepPlannerTest, APromptsStepFitsTheGapWhereRowsCostInProportion) {
  StepPlanner planner({.chunk = 1024, .gap_seconds = 1.0});
  for (const uint32_t rows : {64U, 512U, 256U, 128U})
    planner.StepDone(rows, 0.1 + 0.01 * rows, true);
  EXPECT_NEAR(planner.rows_beside_texts(), 90, 2);
}

// The disk reads all experts for any chunk, which takes five seconds: 12.4 ms a row in a whole one.
TEST(StepPlannerTest, RowsNeverCostMoreThanTwiceWhatTheyCostInAWholeChunk) {
  StepPlanner planner({.chunk = 2048, .gap_seconds = 1.0});
  for (const uint32_t rows : {64U, 512U, 256U, 128U})
    planner.StepDone(rows, 5.0 + 0.01 * rows, true);
  EXPECT_NEAR(planner.rows_beside_texts(), 336, 2);
}

// Then half a chunk costs twice as much for a row as a whole one.
TEST(StepPlannerTest, WhereRowsSeemToCostNothingAStepIsHalfAChunkUnlessAllFitTheGap) {
  for (const auto& [seconds, rows] : {std::pair{5.0, 512U}, std::pair{0.5, 1024U}}) {
    StepPlanner planner({.chunk = 1024, .gap_seconds = 1.0});
    planner.StepDone(16, seconds, true);
    planner.StepDone(32, 0.98 * seconds, true);
    EXPECT_EQ(planner.rows_beside_texts(), rows) << seconds;
  }
}

TEST(StepPlannerTest, StepsOfOneSizeCountInProportion) {
  StepPlanner planner({.chunk = 1024, .gap_seconds = 1.0});
  for (int i = 0; i < 5; ++i) planner.StepDone(512, 5.12, false);
  EXPECT_NEAR(planner.rows_beside_texts(), 100, 1);
}

TEST(StepPlannerTest, OldStepsFade) {
  StepPlanner planner({.chunk = 1024, .gap_seconds = 1.0});
  for (int i = 0; i < 5; ++i) planner.StepDone(512, 51.2, false);
  for (int i = 0; i < 100; ++i) planner.StepDone(512, 5.12, false);
  EXPECT_NEAR(planner.rows_beside_texts(), 100, 1);
}

TEST(StepPlannerTest, TextsAreDueBeforeTheLayerThatWouldEndAfterTheGap) {
  StepPlanner planner({.chunk = 1024, .gap_seconds = 1.0});
  EXPECT_FALSE(planner.is_time_for_texts(0.7, 0.2));
  EXPECT_TRUE(planner.is_time_for_texts(0.9, 0.2));
  EXPECT_TRUE(planner.is_time_for_texts(0.1, 3.0));  // a layer takes longer than that
  // Prompts have as much time as a text's token takes.
  planner.StepDone(0, 2.0, false);
  EXPECT_FALSE(planner.is_time_for_texts(1.9, 0.2));
  EXPECT_TRUE(planner.is_time_for_texts(2.1, 0.2));
}

// The token itself takes a while.
TEST(StepPlannerTest, TextsAreDueWhenTheirStepWouldEndAfterTheGap) {
  StepPlanner planner({.chunk = 1024, .gap_seconds = 1.0});
  planner.StepDone(0, 0.5, false);
  EXPECT_FALSE(planner.is_time_for_texts(0.3, 0.1));  // prompts get as much time as a token takes
  EXPECT_FALSE(planner.is_time_for_texts(0.45, 0.01));
  EXPECT_TRUE(planner.is_time_for_texts(0.5, 0.01));
}

TEST(StepPlannerTest, WhatTextsHadMeanwhileIsOfTheirTurn) {
  StepPlanner planner({.chunk = 64});
  const std::array texts{kWritten, PromptOf(1000)};
  planner.StepDone(64, 1.0, true);
  planner.TextsHad(0.75);
  EXPECT_EQ(planner.Plan(texts)[1], 0U);  // a quarter of a second is left
  planner.StepDone(0, 0.25, false);
  EXPECT_GT(planner.Plan(texts)[1], 0U);
}

TEST(StepPlannerTest, AChunkIsNeverExceeded) {
  StepPlanner planner({.chunk = 8, .gap_seconds = 100.0});
  planner.StepDone(8, 0.001, true);
  planner.StepDone(0, 1.0, false);
  const Rows rows = planner.Plan(std::array{kWritten, PromptOf(100), PromptOf(100), PromptOf(100)});
  EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), 0U), 8U);
}

}  // namespace
}  // namespace moestro
