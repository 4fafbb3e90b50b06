// SPDX-License-Identifier: MIT
#include "native/plan/prompt_chunk.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(PromptChunk, GivesEachExpertRowsEnough) {
  EXPECT_EQ(PromptChunk({.n_expert = 8, .n_used = 2}), 512U);    // Mixtral: 256 would do
  EXPECT_EQ(PromptChunk({.n_expert = 64, .n_used = 8}), 512U);   // OLMoE
  EXPECT_EQ(PromptChunk({.n_expert = 60, .n_used = 4}), 1024U);  // Qwen1.5-MoE: 960
  EXPECT_EQ(PromptChunk({.n_expert = 128, .n_used = 8}), 1024U);
  EXPECT_EQ(PromptChunk({.n_expert = 256, .n_used = 8}), 2048U);
  EXPECT_EQ(PromptChunk({.n_expert = 1000, .n_used = 1}), 2048U);
}

TEST(PromptChunk, WhatIsAskedForCounts) {
  EXPECT_EQ(ChunkFor(7, {.n_expert = 128, .n_used = 8}), 7U);
  EXPECT_EQ(ChunkFor(0, {.n_expert = 128, .n_used = 8}), 1024U);
}

TEST(PromptChunk, FollowsASmallBudget) {
  EXPECT_EQ(ChunkWithin(1024, 100, 200), 1024U);
  EXPECT_EQ(ChunkWithin(1024, 100, 199), 512U);
  EXPECT_EQ(ChunkWithin(2048, 100, 50), 512U);
  EXPECT_EQ(ChunkWithin(1024, 100, 0), 256U);
  EXPECT_EQ(ChunkWithin(600, 100, 0), 300U);
  EXPECT_EQ(ChunkWithin(300, 100, 0), 300U);
  EXPECT_EQ(ChunkWithin(100, 100, 0), 100U);
}

TEST(PromptChunk, AModelWithoutExpertsHasOneToo) { EXPECT_EQ(PromptChunk({}), 512U); }

}  // namespace
}  // namespace moestro
