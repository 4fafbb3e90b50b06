// SPDX-License-Identifier: MIT
// Every switch that a family can declare, on a family that exists in this file only: the engine's
// logits against plain loops (tests/support/float_model_testing.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/append.h"
#include "model/model_file.h"
#include "native/native_engine.h"
#include "tests/support/float_model_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/running_sum_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

constexpr size_t kPrompt = 7;
constexpr size_t kSteps = 5;

// Shares of a token's largest logit. All is F32, keys and values too; the loops add in doubles. A
// product of n terms errs by about sqrt(n) 2^-24 of its size, and a handful of products of up to 96
// terms follow one another in each of 3 layers: 3 * 8 * 10 * 2^-24 = 1.4e-5. Ten times that is
// allowed, as experts pass errors on amplified (by 2.5 where their weights are scaled).
constexpr double kTolerance = 1.4e-4;
// A token whose last chosen expert and first rejected one are closer than that may choose another.
constexpr double kShareOfTokens = 0.8;
// What leaving a switch out must change in most tokens, or the comparison would not notice it.
constexpr double kNoticed = 5e-2;

// The share of tokens whose logits differ by less than `tolerance`.
double ShareWithin(double tolerance, std::span<const float> a, std::span<const float> b,
                   size_t n_vocab) {
  size_t within = 0;
  for (size_t first = 0; first < a.size(); first += n_vocab) {
    double size = 0.0;
    double difference = 0.0;
    for (size_t i = first; i < first + n_vocab; ++i) {
      size = std::max(size, std::abs(double{b[i]}));
      difference = std::max(difference, std::abs(double{a[i]} - b[i]));
    }
    if (difference < tolerance * size) ++within;
  }
  return static_cast<double>(within * n_vocab) / static_cast<double>(a.size());
}

std::unique_ptr<NativeEngine> OpenEngine(const std::string& path, const Family& family,
                                         EngineOptions options) {
  options.ctx = 64;
  options.threads = 2;
  options.kv_type = KvType::kF32;
  options.make_state_mixer = MakeRunningSum;
  auto model = ModelFile::Open(path, {&family, 1});
  if (!model) {
    ADD_FAILURE() << model.error().message;
    return nullptr;
  }
  auto engine = NativeEngine::Open(*std::move(model), options);
  if (!engine) {
    ADD_FAILURE() << engine.error().message;
    return nullptr;
  }
  return *std::move(engine);
}

// A prompt at once, then tokens one by one.
std::vector<float> Evaluate(NativeEngine& engine, const std::vector<Token>& tokens) {
  Sequence sequence = engine.NewSequence();
  const auto prompt = AppendAll(engine, sequence, std::span(tokens).first(kPrompt));
  EXPECT_TRUE(prompt) << prompt.error().message;
  std::vector<float> all = *prompt;
  for (size_t t = kPrompt; t < tokens.size(); ++t) {
    const auto logits = Append(engine, sequence, {&tokens[t], 1});
    EXPECT_TRUE(logits) << logits.error().message;
    all.insert(all.end(), logits->begin(), logits->end());
  }
  return all;
}

struct Case {
  const char* name;
  std::function<void(FloatShape&)> set;
  // The same tensors without the switch; empty where that is another file.
  std::function<void(FloatShape&)> leave_out = {};
};

// Layers that are put together otherwise.
std::vector<Case> OtherLayers() {
  using S = FloatShape;
  return {
      {"relu_squared", [](S& s) { s.activation = Activation::kReluSquared; }},
      {"relu_squared_with_biases_and_a_shared_expert",
       [](S& s) {
         s.activation = Activation::kReluSquared;
         s.has_expert_biases = true;
         s.shared_ff = 64;
       },
       [](S& s) { s.has_expert_biases = false; }},
      {"experts_in_a_smaller_space", [](S& s) { s.latent = 32; }},
      {"experts_in_a_smaller_space_beside_a_shared_one",
       [](S& s) {
         s.latent = 32;
         s.shared_ff = 64;
         s.dense_layers = 1;
       },
       [](S& s) { s.shared_ff = 0; }},
      {"mixers_and_experts_alone",
       [](S& s) {
         s.layers = 4;
         s.has_lone_parts = true;
       }},
      {"small_spaces_states_and_two_matrices",
       [](S& s) {
         s.layers = 6;
         s.has_lone_parts = true;
         s.state_every = 3;
         s.latent = 32;
         s.shared_ff = 64;
         s.activation = Activation::kReluSquared;
       }},
      {"expert_widths_that_differ", [](S& s) { s.odd_ff = 64; }},
      {"fused_experts_of_widths_that_differ",
       [](S& s) {
         s.odd_ff = 96;
         s.is_fused = true;
       }},
  };
}

std::vector<Case> Cases() {
  using S = FloatShape;
  const auto gating = [](Gating kind) { return [kind](S& s) { s.gating = kind; }; };
  const auto activation = [](Activation kind) { return [kind](S& s) { s.activation = kind; }; };
  const auto norm = [](QkNorm kind) { return [kind](S& s) { s.qk_norm = kind; }; };
  const auto all = [](S& s) {
    s.dense_layers = 1;
    s.dim_v = 32;
    s.shared_ff = 32;
    s.gating = Gating::kSigmoid;
    s.groups = 4;
    s.groups_used = 2;
    s.renormalise = true;
    s.weight_scale = 2.5F;
    s.activation = Activation::kSwigluOai;
    s.qk_norm = QkNorm::kAfterRope;
    s.has_sinks = s.has_attention_biases = true;
    s.has_router_bias = s.has_selection_bias = s.has_expert_biases = s.is_fused = true;
  };
  return {
      {"plain", [](S&) {}},
      {"value_heads_of_their_own", [](S& s) { s.dim_v = 32; }},
      {"value_heads_that_are_smaller", [](S& s) { s.dim_v = 8; }},
      {"leading_dense_layer", [](S& s) { s.dense_layers = 1; }},
      {"two_leading_dense_layers", [](S& s) { s.dense_layers = 2; }},
      {"shared_expert_without_gate", [](S& s) { s.shared_ff = 64; }, [](S& s) { s.shared_ff = 0; }},
      {"fused_gate_and_up", [](S& s) { s.is_fused = true; }},
      {"expert_biases", [](S& s) { s.has_expert_biases = true; },
       [](S& s) { s.has_expert_biases = false; }},
      {"router_bias", [](S& s) { s.has_router_bias = true; },
       [](S& s) { s.has_router_bias = false; }},
      {"sigmoid", gating(Gating::kSigmoid), gating(Gating::kSoftmax)},
      {"softmax_of_chosen", gating(Gating::kSoftmaxOfChosen), gating(Gating::kSoftmax)},
      {"selection_bias",
       [](S& s) {
         s.gating = Gating::kSigmoid;
         s.has_selection_bias = true;
       },
       [](S& s) { s.has_selection_bias = false; }},
      {"groups", [](S& s) { s.groups = 4, s.groups_used = 2; }, [](S& s) { s.groups = 1; }},
      {"sinks", [](S& s) { s.has_sinks = true; }, [](S& s) { s.has_sinks = false; }},
      {"attention_biases", [](S& s) { s.has_attention_biases = true; },
       [](S& s) { s.has_attention_biases = false; }},
      {"norm_of_each_head", norm(QkNorm::kPerHead), norm(QkNorm::kNone)},
      {"norm_of_whole_vectors", norm(QkNorm::kWholeVector), norm(QkNorm::kNone)},
      {"norm_after_rotation", norm(QkNorm::kAfterRope), norm(QkNorm::kPerHead)},
      {"window", [](S& s) { s.odd_window = 4; }, [](S& s) { s.odd_window = 64; }},
      {"window_with_sinks",
       [](S& s) {
         s.odd_window = 4;
         s.has_sinks = true;
       },
       [](S& s) { s.has_sinks = false; }},
      {"renormalised", [](S& s) { s.renormalise = true; }, [](S& s) { s.renormalise = false; }},
      {"scaled", [](S& s) { s.weight_scale = 2.5F; }, [](S& s) { s.weight_scale = 1.0F; }},
      {"geglu", activation(Activation::kGeglu), activation(Activation::kSwiglu)},
      {"swiglu_oai", activation(Activation::kSwigluOai), activation(Activation::kSwiglu)},
      {"odd_layers_with_a_window_and_without_rotation", [](S& s) { s.odd_window = 4; }},
      {"layers_with_a_state", [](S& s) { s.state_every = 2; }},
      {"states_and_windows",
       [](S& s) {
         s.layers = 4;
         s.state_every = 3;
         s.odd_window = 4;
       }},
      {"everything", all},
  };
}

class FamilySwitch : public testing::TestWithParam<Case> {};

TEST_P(FamilySwitch, AgreesWithPlainLoops) {
  const TempFolder folder;
  FloatShape shape;
  GetParam().set(shape);
  const FloatModel model(shape, 5);
  model.Write(folder.File("model.gguf"));
  const auto engine = OpenEngine(folder.File("model.gguf"), SyntheticFamily(shape), {});
  ASSERT_NE(engine, nullptr);
  const std::vector<Token> tokens = SeededTokens(kPrompt + kSteps, shape.vocab, 3);
  const std::vector<float> ours = Evaluate(*engine, tokens);
  const std::vector<float> expected = model.Logits(tokens, shape);
  ASSERT_EQ(ours.size(), expected.size());
  EXPECT_GE(ShareWithin(kTolerance, ours, expected, shape.vocab), kShareOfTokens);
  if (!GetParam().leave_out) return;
  FloatShape without = shape;
  GetParam().leave_out(without);
  EXPECT_LT(ShareWithin(kNoticed, model.Logits(tokens, without), expected, shape.vocab), 0.5);
}

std::string NameOf(const testing::TestParamInfo<Case>& one) { return one.param.name; }
INSTANTIATE_TEST_SUITE_P(All, FamilySwitch, testing::ValuesIn(Cases()), NameOf);
INSTANTIATE_TEST_SUITE_P(OtherLayers, FamilySwitch, testing::ValuesIn(OtherLayers()), NameOf);

// Layers without experts are no part of what residency and prefetch count.
TEST(FamilyExactness, SameBitsInAQuarterOfTheExpertsWithReadsAhead) {
  const TempFolder folder;
  FloatShape shape;
  Cases().back().set(shape);
  shape.layers = 5;
  const FloatModel model(shape, 6);
  model.Write(folder.File("model.gguf"));
  const Family family = SyntheticFamily(shape);
  const std::vector<Token> tokens = SeededTokens(kPrompt + kSteps, shape.vocab, 4);
  EngineOptions options;
  options.prefetch = 0;
  const auto resident = OpenEngine(folder.File("model.gguf"), family, options);
  ASSERT_NE(resident, nullptr);
  const std::vector<float> expected = Evaluate(*resident, tokens);
  options.cache = CacheSize{.percent = 25.0};
  options.prefetch = 3;
  const auto streamed = OpenEngine(folder.File("model.gguf"), family, options);
  ASSERT_NE(streamed, nullptr);
  const std::vector<float> ours = Evaluate(*streamed, tokens);
  ASSERT_EQ(ours.size(), expected.size());
  EXPECT_EQ(0, std::memcmp(ours.data(), expected.data(), ours.size() * sizeof(float)));
  EXPECT_GT(streamed->stats().decode.misses, 0U);
}

}  // namespace
}  // namespace moestro
