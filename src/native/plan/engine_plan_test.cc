// SPDX-License-Identifier: MIT
#include "native/plan/engine_plan.h"

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
  EXPECT_EQ(ChunkWithin(300, 100, 1), 300U);
  // A small board has no room for that.
  EXPECT_EQ(ChunkWithin(300, 100, 0), 150U);
  EXPECT_EQ(ChunkWithin(256, 100, 0), 128U);
  EXPECT_EQ(ChunkWithin(40, 100, 0), 32U);
  EXPECT_EQ(ChunkWithin(32, 100, 0), 32U);
  EXPECT_EQ(ChunkWithin(20, 100, 0), 20U);
}

// A model of 128 experts of which 8 are used, with room for half of them on the device.
constexpr DeviceChunkCase kHalfThere{.usual = 1024,
                                     .n_ctx = 32768,
                                     .router = {.n_expert = 128, .n_used = 8},
                                     .expert_bytes = 16000,
                                     .vram = 16000,
                                     .work_there = 200,
                                     .slots_there = 8000,
                                     .work_here = 200,
                                     .slots_here = 16000};

TEST(DeviceChunk, GivesEachCopiedExpertRowsEnough) {
  DeviceChunkCase of = kHalfThere;
  of.work_there = of.work_here = 1;
  EXPECT_EQ(DeviceChunk(of), kMostChunk);
  of.router.n_used = 32;
  EXPECT_EQ(DeviceChunk(of), 2560U);
  of.router.n_used = 128;
  EXPECT_EQ(DeviceChunk(of), 1024U);
}

TEST(DeviceChunk, TakesASmallShareOfTheSlots) {
  DeviceChunkCase of = kHalfThere;
  EXPECT_EQ(DeviceChunk(of), 1024U + 5U * 1024);  // 1000 bytes more, a sixteenth of the device
  of.vram = 100000;
  of.slots_there = 3200;
  EXPECT_EQ(DeviceChunk(of), 1024U + 2 * 1024);  // 400 bytes more, an eighth of the slots
  of.slots_here = 800;
  EXPECT_EQ(DeviceChunk(of), 1024U + 512);
  of.slots_here = 0;
  EXPECT_EQ(DeviceChunk(of), 1024U);
}

TEST(DeviceChunk, IsNoLongerThanTheContext) {
  DeviceChunkCase of = kHalfThere;
  of.n_ctx = 3000;
  EXPECT_EQ(DeviceChunk(of), 3000U);
  of.n_ctx = 1000;
  of.usual = 1000;
  EXPECT_EQ(DeviceChunk(of), 1000U);
}

TEST(DeviceChunk, IsTheUsualOneWhereNothingIsCopied) {
  DeviceChunkCase of = kHalfThere;
  of.expert_bytes = of.slots_there;
  EXPECT_EQ(DeviceChunk(of), 1024U);
}

TEST(PromptChunk, AModelWithoutExpertsHasOneToo) { EXPECT_EQ(PromptChunk({}), 512U); }

// Two layers with experts; 32 positions are a block of the KV cache.
ModelSpec SmallModel() {
  const FeedForwardSpec experts{.n_ff_expert = 8};
  ModelSpec spec;
  spec.layers = {{.mixer = AttentionSpec{}, .feed_forward = experts},
                 {.mixer = AttentionSpec{}, .feed_forward = {.n_ff_dense = 8}},
                 {.mixer = AttentionSpec{}, .feed_forward = experts}};
  spec.n_vocab = 1 << 18;  // 1 MiB of logits a row
  spec.n_ctx_train = 1000;
  spec.router = {.n_expert = 8, .n_used = 2};
  return spec;
}

EnginePlan PlanOf(const SizeRequest& request, const LayerMemory& layer = {}) {
  const MemoryShape remembers{.layers = {layer}};
  const Result<EnginePlan> plan = EnginePlan::Of(request, SmallModel(), remembers);
  EXPECT_TRUE(plan.has_value());
  return plan.value_or(EnginePlan());
}

std::string ErrorOf(const SizeRequest& request) {
  const Result<EnginePlan> plan = EnginePlan::Of(request, SmallModel(), {});
  EXPECT_FALSE(plan.has_value());
  if (plan) return "";
  EXPECT_EQ(plan.error().code, Errc::kInvalidRequest);
  return plan.error().message;
}

TEST(EnginePlan, TheModelLimitsTheContext) {
  EXPECT_EQ(PlanOf({.ctx = 70}).n_ctx, 70U);
  EXPECT_EQ(PlanOf({.ctx = 4096}).n_ctx, 1000U);
}

TEST(EnginePlan, BlocksAreWhole) {
  const EnginePlan plan = PlanOf({.ctx = 70});
  EXPECT_EQ(plan.n_blocks, 3U);
  EXPECT_EQ(plan.cells.all, 96U);
}

TEST(EnginePlan, WhatSequencesHaveInCommonHasRoomOnce) {
  EXPECT_EQ(PlanOf({.ctx = 100, .sequences = 3}).n_blocks, 3 * 4U);
  EXPECT_EQ(PlanOf({.ctx = 100, .sequences = 3, .common_positions = 64}).n_blocks, 2 + 3 * 2U);
  EXPECT_EQ(PlanOf({.ctx = 100, .sequences = 3, .common_positions = 5000}).n_blocks, 4U);
}

TEST(EnginePlan, LayersWithAWindowHaveCellsOfTheLastPositions) {
  const MemoryShape windowed{.layers = {{.keys = 8, .values = 8, .window = 33}}};
  ModelSpec spec = SmallModel();
  spec.n_ctx_train = 8000;
  const auto plan = EnginePlan::Of({.ctx = 8000, .chunk = 64, .sequences = 4}, spec, windowed);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->cells.all, 4 * 8000U);
  // A window and what may be cut back, twice 64 positions, are six blocks: of four sequences, of as
  // many kept ones as a state has places, and again of the four while they are in a step. A chunk,
  // and for each sequence a block that it begins with another's.
  EXPECT_EQ(plan->recent.blocks, (18 + 4) * 6U + 2 + 4);
  EXPECT_EQ(plan->cells.recent, 138U * 32);
  // Layers with a window have cells of all positions where a window saves nothing.
  EXPECT_EQ(PlanOf({.ctx = 1000, .sequences = 4}, windowed.layers.front()).cells.recent, 0U);
}

TEST(EnginePlan, PositionsThatAreAskedForCount) {
  EXPECT_EQ(PlanOf({.ctx = 100, .sequences = 3, .positions = 320}).n_blocks, 10U);
  EXPECT_EQ(PlanOf({.ctx = 100, .sequences = 3, .positions = 1}).n_blocks, 4U);
}

TEST(EnginePlan, AStepOfAllSequencesIsOneChunk) {
  EXPECT_EQ(PlanOf({.ctx = 1000, .chunk = 7}).chunk, 7U);
  EXPECT_EQ(PlanOf({.ctx = 1000}).chunk, 512U);
  EXPECT_EQ(PlanOf({.ctx = 10}).chunk, 10U);
  EXPECT_EQ(PlanOf({.ctx = 10, .sequences = 20}).chunk, 20U);
}

TEST(EnginePlan, LogitsHaveFourMebibytesOrARowForEachSequence) {
  EXPECT_EQ(PlanOf({.ctx = 1000}).logits_rows, 4U);
  EXPECT_EQ(PlanOf({.ctx = 1000, .sequences = 9}).logits_rows, 9U);
  EXPECT_EQ(PlanOf({.ctx = 1000, .chunk = 3}).logits_rows, 3U);
}

TEST(EnginePlan, LookAheadEndsWithTheLayersThatHaveExperts) {
  EXPECT_EQ(PlanOf({.ctx = 10, .look_ahead = 0}).look_ahead, 0U);
  EXPECT_EQ(PlanOf({.ctx = 10, .look_ahead = 5}).look_ahead, 1U);
}

TEST(EnginePlan, StatesHavePlacesIfLayersHaveThem) {
  EXPECT_EQ(PlanOf({.ctx = 10, .sequences = 3}).n_states, 0U);
  EXPECT_EQ(PlanOf({.ctx = 10, .sequences = 3}, {.state_values = 8}).n_states, 7U);
}

TEST(EnginePlan, RefusesWhatHoldsNoPrompt) {
  EXPECT_EQ(ErrorOf({.ctx = 0}), "a context of 0 tokens holds no prompt; set --ctx");
  EXPECT_EQ(ErrorOf({.ctx = 10, .sequences = 0}),
            "room for 0 sequences holds no prompt; ask for at least one");
}

TEST(EnginePlan, RefusesMoreCellsThanCanBeCounted) {
  EXPECT_EQ(ErrorOf({.ctx = 1000, .sequences = 4'000'000}),
            "4000000 sequences of 1000 tokens are more than a KV cache can hold");
}

// Experts of 2 MB: 0.2 ms on the CPU, 2 ms from the disk. A host takes as long as the CPU, and a
// round trip beside it.
LatencyModel RemoteMachine(double round_trip, double disk_per_byte = 1e-9) {
  return {.host = {.per_byte = 0.1e-9},
          .disk = {.per_byte = disk_per_byte},
          .devices = {
              {.compute = {.per_byte = 0.1e-9}, .copy = {.per_byte = 8e-9}, .launch = round_trip}}};
}

constexpr RemoteCase kCase{.n_used = 8, .expert_bytes = 2'000'000, .in_memory = 0.5};

RemoteCase With(double there) {
  RemoteCase with = kCase;
  with.there = {there};
  return with;
}

TEST(RemoteGain, AHostThatSavesReadsPays) {
  const RemoteGain gain = GainOfRemotes(With(1.0), RemoteMachine(0.5e-3), PlaceMode::kAuto);
  EXPECT_NEAR(gain.without, 8e-3, 1.5e-3) << "four reads";
  EXPECT_GT(gain.factor(), 3.0);
  EXPECT_TRUE(gain.pays());
  EXPECT_LT(GainOfRemotes(With(0.2), RemoteMachine(0.5e-3), PlaceMode::kAuto).factor(),
            gain.factor());
}

TEST(RemoteGain, MemoryHasWhatTheHostLacks) {
  const RemoteGain gain = GainOfRemotes(With(0.5), RemoteMachine(0.5e-3), PlaceMode::kAuto);
  EXPECT_LT(gain.with, 2e-3) << "half here and half there: nothing is read";
}

TEST(RemoteGain, AHostBehindASlowNetworkDoesNot) {
  EXPECT_FALSE(GainOfRemotes(With(1.0), RemoteMachine(20e-3), PlaceMode::kAuto).pays());
  const RemoteGain forced = GainOfRemotes(With(1.0), RemoteMachine(20e-3), PlaceMode::kCooperative);
  EXPECT_LT(forced.factor(), 0.6) << "what is there runs there";
}

TEST(RemoteGain, NothingThereChangesNothing) {
  EXPECT_EQ(GainOfRemotes(With(0.0), RemoteMachine(0.5e-3), PlaceMode::kAuto).factor(), 1.0);
}

TEST(RemoteGain, WhereAllIsInMemoryThereIsLittleToGain) {
  RemoteCase all = With(1.0);
  all.in_memory = 1.0;
  EXPECT_LT(GainOfRemotes(all, RemoteMachine(0.5e-3), PlaceMode::kAuto).factor(), 2.01);
  EXPECT_FALSE(GainOfRemotes(all, RemoteMachine(2e-3), PlaceMode::kAuto).pays());
}

}  // namespace
}  // namespace moestro
