// SPDX-License-Identifier: MIT
// Traces of a running engine that hold two passes of every token.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/random_tokens.h"
#include "decide/layer/lossy_options.h"
#include "engine/append.h"
#include "engine/recorded_routing.h"
#include "native/native_engine.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kLittle = 2;
constexpr size_t kPrompt = 5;
constexpr size_t kTokens = 20;

class RecordTest : public testing::Test {
 protected:
  RecordTest() {
    EngineOptions options;
    options.ctx = 64;
    options.threads = 2;
    options.cache = CacheSize{.percent = 50.0};
    auto engine = NativeEngine::Open(path_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    engine_ = *std::move(engine);
    tokens_ = SeededTokens(kTokens, engine_->spec().n_vocab, 7);
  }

  Trace Record(uint32_t little) {
    const TraceInfo info{.model = engine_->id(),
                         .depth = 1,
                         .little = little,
                         .has_weights = true,
                         .has_predicted_weights = true,
                         .has_candidates = true};
    Trace trace = *Trace::Create(info);
    RouteRecorder recorder(*engine_, info,
                           [&](const TraceToken& token) { return trace.Add(token); });
    const Status done = recorder.Record(tokens_, kPrompt);
    EXPECT_TRUE(done) << done.error().message;
    EXPECT_EQ(trace.tokens(), kTokens);
    return trace;
  }

  TempFolder folder_;
  std::string path_ = WriteTinyModel(
      folder_.path(), {.arch = "qwen3moe", .type = "Q8_0", .layers = 4, .experts = 16, .used = 4});
  std::unique_ptr<NativeEngine> engine_;
  std::vector<Token> tokens_;
};

TEST_F(RecordTest, ALittlePassChangesNothingOfTheFullOne) {
  const Trace plain = Record(0);
  const Trace both = Record(kLittle);
  for (size_t t = 0; t < kTokens; ++t) {
    EXPECT_EQ(both.phase(t), plain.phase(t));
    for (size_t l = 0; l < 4; ++l) {
      EXPECT_TRUE(std::ranges::equal(both.experts(t, l), plain.experts(t, l)));
      EXPECT_TRUE(std::ranges::equal(both.weights(t, l), plain.weights(t, l)));
      EXPECT_TRUE(std::ranges::equal(both.predicted(t, l, 1), plain.predicted(t, l, 1)));
      EXPECT_TRUE(
          std::ranges::equal(both.predicted_weights(t, l, 1), plain.predicted_weights(t, l, 1)));
      EXPECT_TRUE(std::ranges::equal(both.candidates(t, l).scores, plain.candidates(t, l).scores));
    }
  }
}

TEST_F(RecordTest, APromptsTokensRepeatTheirOwn) {
  const Trace trace = Record(kLittle);
  for (size_t t = 0; t < kPrompt; ++t) {
    EXPECT_EQ(trace.confidence(t), 1.0F);
    for (size_t l = 0; l < 4; ++l) {
      EXPECT_TRUE(std::ranges::equal(trace.little_experts(t, l), trace.experts(t, l)));
      EXPECT_TRUE(
          std::ranges::equal(trace.little_weights(t, l), trace.weights(t, l).first(kLittle)));
      const std::span<const float> ahead = trace.predicted_weights(t, l, 1);
      EXPECT_TRUE(std::ranges::equal(trace.little_predicted_weights(t, l, 1),
                                     ahead.first(l < 3 ? kLittle : 0)));
    }
  }
}

// The family's weights are parts of one, also where a router only looks ahead.
TEST_F(RecordTest, WeightsOfPredictionsAreThoseOfARouter) {
  const Trace trace = Record(kLittle);
  const auto expect_parts_of_one = [](std::span<const float> weights, size_t n) {
    ASSERT_EQ(weights.size(), n);
    EXPECT_NEAR(std::reduce(weights.begin(), weights.end()), 1.0F, 1e-5F);
    EXPECT_TRUE(std::ranges::is_sorted(weights, std::greater()));
  };
  for (size_t t = kPrompt; t < kTokens; ++t) {
    for (size_t l = 0; l < 3; ++l) {
      expect_parts_of_one(trace.predicted_weights(t, l, 1), 4);
      expect_parts_of_one(trace.little_predicted_weights(t, l, 1), kLittle);
    }
  }
}

// A prompt may be one token, and its last chunk, too; a step's tokens are its engine's chunk.
TEST_F(RecordTest, PromptsAreRecordedAsPromptsInTheirSteps) {
  EngineOptions options;
  options.ctx = 64;
  options.threads = 2;
  options.chunk = 4;
  options.cache = CacheSize{.percent = 50.0};
  const auto engine = NativeEngine::Open(path_, options);
  ASSERT_TRUE(engine) << engine.error().message;
  for (const size_t prompt : {size_t{0}, size_t{1}, size_t{9}}) {
    for (const uint32_t little : {0U, kLittle}) {
      const TraceInfo info{.model = (*engine)->id(),
                           .little = little,
                           .has_weights = true,
                           .has_prompt_steps = true};
      Trace trace = *Trace::Create(info);
      RouteRecorder recorder(**engine, info,
                             [&](const TraceToken& token) { return trace.Add(token); });
      const Status done = recorder.Record(tokens_, prompt);
      ASSERT_TRUE(done) << done.error().message;
      ASSERT_EQ(trace.tokens(), kTokens);
      for (size_t t = 0; t < kTokens; ++t) {
        EXPECT_EQ(trace.phase(t), t < prompt ? Phase::kPrefill : Phase::kDecode) << t;
        EXPECT_EQ(trace.joins_step(t), t < prompt && t % 4 != 0) << t;
        if (little == 0 || t >= prompt) continue;
        EXPECT_EQ(trace.confidence(t), 1.0F) << t;
      }
    }
  }
}

// Experts that the router's groups exclude are candidates, too, and have no number for a score.
TEST(RecordGroups, CandidatesOfRoutersWithGroupsAreRecorded) {
  for (const char* arch : {"deepseek2", "deepseek32", "bailingmoe2"}) {
    SCOPED_TRACE(arch);
    const TempFolder folder;
    const std::string path = WriteTinyModel(
        folder.path(),
        {.arch = arch, .type = "Q8_0", .layers = 4, .experts = 16, .used = 4, .has_sigmoid = true});
    const auto engine = NativeEngine::Open(path, {.threads = 1, .ctx = 64});
    ASSERT_TRUE(engine) << engine.error().message;
    ASSERT_GT((*engine)->spec().router.n_group, 1U);
    const TraceInfo info{.model = (*engine)->id(), .has_candidates = true};
    Trace trace = *Trace::Create(info);
    RouteRecorder recorder(**engine, info,
                           [&](const TraceToken& token) { return trace.Add(token); });
    const Status done = recorder.Record(SeededTokens(12, (*engine)->spec().n_vocab, 7), 5);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(trace.tokens(), 12U);
    EXPECT_GT(trace.candidates(6, 0).ranges[0], 0.0F);
  }
}

TEST_F(RecordTest, TheLittlePassIsWhatALittleStepDoes) {
  const Trace trace = Record(kLittle);
  Sequence sequence = engine_->NewSequence();
  ASSERT_TRUE(Append(*engine_, sequence, std::span(tokens_).first(kPrompt)));
  size_t others = 0;
  for (size_t t = kPrompt; t < kTokens; ++t) {
    // The first layer sees no other experts before it.
    EXPECT_TRUE(std::ranges::equal(trace.little_experts(t, 0), trace.experts(t, 0)));
    for (size_t l = 0; l < 4; ++l) {
      others += !std::ranges::equal(trace.little_experts(t, l), trace.experts(t, l));
      float sum = 0.0F;
      for (const float weight : trace.little_weights(t, l)) sum += weight;
      EXPECT_NEAR(sum, 1.0F, 1e-5F);
    }
    Batch batch = RowsOf(sequence, {&tokens_[t], 1}, RowKind::kDecode);
    batch.little.n_used = kLittle;
    double confidence = 0.0;
    ASSERT_TRUE(engine_->Step(
        batch, [&](size_t, std::span<const float> logits) { confidence = Confidence(logits); }));
    EXPECT_EQ(trace.confidence(t), static_cast<float>(confidence)) << t;
    sequence.CutBack(sequence.position() - 1);
    ASSERT_TRUE(Append(*engine_, sequence, {&tokens_[t], 1}));
  }
  EXPECT_GT(others, 0U);
}

// The source and the token behind it are a prompt whatever is asked for; zeros stand in the layers
// of the other stack.
TEST_F(RecordTest, SourcesAreRecordedInTheEncodersLayers) {
  const TempFolder folder;
  const std::string path = WriteTinyModel(folder.path(), {.arch = "switch",
                                                          .layers = 4,
                                                          .experts = 8,
                                                          .embd = 128,
                                                          .ff = 96,
                                                          .dense_ff = 160,
                                                          .heads = 4,
                                                          .head_dim = 32,
                                                          .vocab = 512});
  auto engine = NativeEngine::Open(path, EngineOptions{.threads = 2});
  ASSERT_TRUE(engine) << engine.error().message;
  const TraceInfo info{.model = (*engine)->id(),
                       .depth = 1,
                       .has_weights = true,
                       .has_predicted_weights = true,
                       .has_candidates = true};
  const MoeShape& shape = info.shape();
  ASSERT_EQ(shape.n_encoder, 2U);
  std::vector<Token> tokens = SeededTokens(30, 512, 7);
  MakePrompt((*engine)->spec().encoder, 20, tokens);
  Trace trace = *Trace::Create(info);
  {
    RouteRecorder recorder(**engine, info,
                           [&](const TraceToken& token) { return trace.Add(token); });
    const Status done = recorder.Record(tokens, 0);
    ASSERT_TRUE(done) << done.error().message;
  }
  ASSERT_EQ(trace.tokens(), 30U);
  for (size_t t = 0; t < 30; ++t) {
    EXPECT_EQ(trace.is_source(t), t < 19) << t;
    EXPECT_EQ(trace.phase(t), t < 20 ? Phase::kPrefill : Phase::kDecode) << t;
    EXPECT_EQ(trace.starts_sequence(t), t == 0);
  }
  // As the routers said, layer by layer.
  std::vector<std::vector<ExpertId>> chosen(shape.n_layer);
  (*engine)->SetRouteObserver(
      [&](const SeenRouting& seen) { chosen[seen.layer.value].append_range(seen.routing.experts); },
      0, false);
  Sequence sequence = (*engine)->NewSequence();
  ASSERT_TRUE(Append(**engine, sequence, tokens));
  for (size_t l = 0; l < shape.n_layer; ++l) {
    const size_t first = l < 2 ? 0 : 19;
    ASSERT_EQ(chosen[l].size(), l < 2 ? 19U : 11U);
    for (size_t i = 0; i < chosen[l].size(); ++i) {
      EXPECT_EQ(trace.experts(first + i, l)[0], chosen[l][i]) << l << " " << i;
    }
  }
}

// Nothing is predicted in the decoder's only layer with experts.
TEST_F(RecordTest, ADecoderMayHaveOneLayerWithExperts) {
  const TempFolder folder;
  const std::string path = WriteTinyModel(folder.path(), {.arch = "switch",
                                                          .layers = 2,
                                                          .experts = 8,
                                                          .embd = 128,
                                                          .ff = 96,
                                                          .dense_ff = 160,
                                                          .heads = 4,
                                                          .head_dim = 32,
                                                          .vocab = 512});
  auto engine = NativeEngine::Open(path, EngineOptions{.threads = 2});
  ASSERT_TRUE(engine) << engine.error().message;
  for (const bool has_details : {true, false}) {
    const TraceInfo info{.model = (*engine)->id(),
                         .depth = 1,
                         .has_weights = has_details,
                         .has_predicted_weights = has_details,
                         .has_candidates = has_details};
    ASSERT_EQ(info.shape().n_encoder, 1U);
    ASSERT_EQ(info.shape().n_layer, 2U);
    std::vector<Token> tokens = SeededTokens(20, 512, 7);
    MakePrompt((*engine)->spec().encoder, 10, tokens);
    Trace trace = *Trace::Create(info);
    RouteRecorder recorder(**engine, info,
                           [&](const TraceToken& token) { return trace.Add(token); });
    const Status done = recorder.Record(tokens, 0);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(trace.tokens(), 20U);
  }
}

// Costs are measured beside the run: nothing is counted, and the text goes on as it would have.
TEST_F(RecordTest, MeasuringCostsLeavesNoTrace) {
  const std::span<const Token> tokens(tokens_);
  const auto last = [&](Sequence& sequence) {
    std::vector<float> logits;
    Batch batch;
    batch.rows.push_back({.sequence = sequence.id(),
                          .position = sequence.position(),
                          .token = tokens_.back(),
                          .wants_logits = true});
    EXPECT_TRUE(engine_->Step(
        batch, [&](size_t, std::span<const float> row) { logits.assign(row.begin(), row.end()); }));
    return logits;
  };
  Sequence plain = engine_->NewSequence();
  for (const Token& token : tokens.first(kTokens - 1)) {
    ASSERT_TRUE(Append(*engine_, plain, {&token, 1}));
  }
  const std::vector<float> expected = last(plain);

  Sequence sequence = engine_->NewSequence();
  EXPECT_FALSE(engine_->ProbeCosts(sequence).value());  // it is empty
  for (const Token& token : tokens.first(kTokens - 1)) {
    ASSERT_TRUE(Append(*engine_, sequence, {&token, 1}));
  }
  const PhaseStats before = engine_->stats().decode;
  const auto costs = engine_->ProbeCosts(sequence);
  ASSERT_TRUE(costs) << costs.error().message;
  ASSERT_TRUE(*costs);
  EXPECT_TRUE((*costs)->is_sane());
  EXPECT_GT((*costs)->compute, 0.0);
  EXPECT_GT((*costs)->expert_share, 0.0);
  EXPECT_EQ((*costs)->io_depth, engine_->facts().io_depth);
  EXPECT_EQ(engine_->stats().decode.tokens, before.tokens);
  EXPECT_EQ(engine_->stats().decode.requests, before.requests);
  EXPECT_EQ(sequence.position(), kTokens - 1);
  EXPECT_EQ(last(sequence), expected);
}

}  // namespace
}  // namespace moestro
