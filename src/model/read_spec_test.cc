// SPDX-License-Identifier: MIT
#include "model/read_spec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "model/gguf_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

class ReadSpecTest : public testing::Test {
 protected:
  Result<ModelSpec> Spec(const GgufBuilder& builder,
                         std::span<const Family> families = Families()) const {
    const std::string path = (folder_.path() / "model.gguf").string();
    builder.Write(path);
    TRY(const GgufFile file, GgufFile::Open(path));
    return ReadSpec(file, families);
  }
  void ExpectError(const GgufBuilder& builder, Errc code, const std::string& words,
                   std::span<const Family> families = Families()) const {
    const auto spec = Spec(builder, families);
    ASSERT_FALSE(spec) << words;
    EXPECT_EQ(spec.error().code, code) << spec.error().message;
    EXPECT_NE(spec.error().message.find(words), std::string::npos) << spec.error().message;
    EXPECT_EQ(spec.error().message.find('\n'), std::string::npos);
  }

  TempFolder folder_;
};

TEST_F(ReadSpecTest, ReadsLlama) {
  const auto spec = Spec(SmallMoe("llama"));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->arch_name, "llama");
  EXPECT_EQ(spec->name, "small");
  EXPECT_EQ(spec->n_layer(), 2U);
  EXPECT_EQ(spec->n_embd, 32U);
  EXPECT_EQ(spec->layers.front().attention()->n_head, 4U);
  EXPECT_EQ(spec->layers.front().attention()->n_head_kv, 2U);
  EXPECT_EQ(spec->layers.front().attention()->head_dim_k, 8U);
  EXPECT_EQ(spec->layers.front().attention()->head_dim_v, 8U);
  EXPECT_EQ(spec->layers.back().feed_forward.n_ff_expert, 64U);
  EXPECT_EQ(spec->layers.back().feed_forward.n_ff_shared, 0U);
  EXPECT_EQ(spec->n_vocab, 300U);
  EXPECT_EQ(spec->n_ctx_train, 128U);
  EXPECT_FLOAT_EQ(spec->rms_eps, 1e-6F);
  EXPECT_FALSE(spec->tied_output);
  const RopeSpec rope{.n_dims = 8, .freq_base = 5000.0F, .original_context = 128};
  EXPECT_EQ(spec->layers.front().attention()->rope, rope);
  const RouterSpec router{.n_expert = 4, .n_used = 2, .renormalise = true};
  EXPECT_EQ(spec->router, router);
}

TEST_F(ReadSpecTest, ReadsWhatDiffersBetweenArchitectures) {
  const auto qwen2 = Spec(SmallMoe("qwen2moe"));
  ASSERT_TRUE(qwen2) << qwen2.error().message;
  EXPECT_FALSE(qwen2->router.renormalise);
  // feed_forward_length 128 by 2 used experts.
  EXPECT_EQ(qwen2->layers.back().feed_forward.n_ff_expert, 64U);
  EXPECT_EQ(qwen2->layers.back().feed_forward.n_ff_shared, 96U);

  const auto qwen3 = Spec(SmallMoe("qwen3moe"));
  ASSERT_TRUE(qwen3) << qwen3.error().message;
  EXPECT_TRUE(qwen3->router.renormalise);
  EXPECT_EQ(qwen3->layers.back().feed_forward.n_ff_expert, 64U);
  EXPECT_EQ(qwen3->layers.front().attention()->head_dim_k, 16U);
  EXPECT_EQ(qwen3->layers.front().attention()->rope->n_dims, 16U);

  const auto olmoe = Spec(SmallMoe("olmoe").Set("olmoe.attention.clamp_kqv", 8.0F));
  ASSERT_TRUE(olmoe) << olmoe.error().message;
  EXPECT_FALSE(olmoe->router.renormalise);
  EXPECT_EQ(olmoe->layers.front().attention()->clamp_kqv, 8.0F);

  const auto phimoe = Spec(SmallMoe("phimoe")
                               .Set("phimoe.rope.scaling.original_context_length", 64U)
                               .Set("phimoe.rope.scaling.attn_factor", 1.19F));
  ASSERT_TRUE(phimoe) << phimoe.error().message;
  EXPECT_TRUE(phimoe->router.renormalise);
  EXPECT_EQ(phimoe->layers.front().attention()->rope->original_context, 64U);
  EXPECT_FLOAT_EQ(phimoe->layers.front().attention()->rope->attn_factor, 1.19F);
  EXPECT_EQ(phimoe->layers.front().attention()->rope->freq_scale, 1.0F);
}

TEST_F(ReadSpecTest, AppliesDefaults) {
  const auto spec = Spec(SmallMoe("olmoe")
                             .Remove("olmoe.attention.head_count_kv")
                             .Remove("olmoe.rope.freq_base")
                             .Remove("general.name")
                             .RemoveTensor("output.weight"));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->layers.front().attention()->n_head_kv, 4U);
  EXPECT_EQ(spec->layers.front().attention()->rope->freq_base, 10000.0F);
  EXPECT_EQ(spec->name, "");
  EXPECT_TRUE(spec->tied_output);
}

TEST_F(ReadSpecTest, ReadsRopeScaling) {
  const auto scaled = [&](const char* type) {
    return Spec(SmallMoe("qwen3moe")
                    .Set("qwen3moe.rope.scaling.type", type)
                    .Set("qwen3moe.rope.scaling.factor", 4.0F)
                    .Set("qwen3moe.rope.scaling.original_context_length", 32U));
  };
  const auto none = scaled("none");
  ASSERT_TRUE(none);
  EXPECT_EQ(none->layers.front().attention()->rope->freq_scale, 1.0F);
  const auto linear = scaled("linear");
  ASSERT_TRUE(linear);
  EXPECT_EQ(linear->layers.front().attention()->rope->freq_scale, 0.25F);
  EXPECT_EQ(linear->layers.front().attention()->rope->ext_factor, 0.0F);
  const auto yarn = scaled("yarn");
  ASSERT_TRUE(yarn);
  const RopeSpec expected{.n_dims = 16,
                          .freq_base = 5000.0F,
                          .freq_scale = 0.25F,
                          .ext_factor = 1.0F,
                          .attn_factor = 1.0F,
                          .beta_fast = 32.0F,
                          .beta_slow = 1.0F,
                          .original_context = 32};
  EXPECT_EQ(yarn->layers.front().attention()->rope, expected);
  EXPECT_EQ(scaled("su").error().code, Errc::kUnsupported);
  // The name of old converters, and no type: linear.
  const auto old = Spec(SmallMoe("llama").Set("llama.rope.scale_linear", 2.0F));
  ASSERT_TRUE(old);
  EXPECT_EQ(old->layers.front().attention()->rope->freq_scale, 0.5F);
}

TEST_F(ReadSpecTest, AcceptsOneValuePerLayer) {
  const auto spec = Spec(SmallMoe("llama").SetInts("llama.attention.head_count_kv", {2, 2}));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->layers.front().attention()->n_head_kv, 2U);
  ExpectError(SmallMoe("llama").SetInts("llama.attention.key_length", {8, 16}), Errc::kUnsupported,
              "differs between layers");
}

TEST_F(ReadSpecTest, RefusesOtherModels) {
  ExpectError(SmallMoe("llama").Set("general.architecture", "mamba"), Errc::kUnsupported,
              "supported are llama, " + FamilyNames(Families().subspan(1)));
  ExpectError(SmallMoe("llama").Remove("general.architecture"), Errc::kInvalidFile,
              "general.architecture");
  const std::string used = "llama.expert_used_count";
  ExpectError(SmallMoe("llama").Remove(used).Set("llama.expert_count", 0U), Errc::kUnsupported,
              "dense model");
  ExpectError(SmallMoe("llama").Remove(used).Remove("llama.expert_count"), Errc::kUnsupported,
              "dense model");
  ExpectError(SmallMoe("llama").Set("llama.leading_dense_block_count", 1U), Errc::kUnsupported,
              "leading_dense_block_count");
  ExpectError(SmallMoe("llama").Set("llama.expert_gating_func", 2U), Errc::kUnsupported,
              "expert_gating_func");
  ExpectError(SmallMoe("llama").Set("llama.expert_shared_feed_forward_length", 8U),
              Errc::kUnsupported, "shared experts");
  ExpectError(SmallMoe("llama").Set("llama.attention.value_length", 4U), Errc::kUnsupported,
              "value_length");
}

// A family under the name of a real one, so that SmallMoe() can write it.
Family Liberal() {
  return {
      .name = "llama",
      .router = {.gating_key = Presence::kOptional, .renormalise_by_key = true, .has_groups = true},
      .feed_forward_length = FeedForwardLength::kDenseLayer,
      .shared_expert = SharedExpertKind::kCounted,
      .has_dense_layers = true,
      .has_value_heads_of_own = true,
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors()};
}

GgufBuilder LiberalMoe() {
  GgufBuilder file = SmallMoe("llama");
  file.Set("llama.expert_feed_forward_length", 64U).Set("llama.feed_forward_length", 96U);
  file.Set("llama.expert_shared_count", 2U);
  return file;
}

TEST_F(ReadSpecTest, ReadsWhatAFamilyDeclares) {
  const Family family = Liberal();
  GgufBuilder file = LiberalMoe();
  file.Set("llama.expert_gating_func", 2U).Set("llama.expert_weights_norm", true);
  file.Set("llama.expert_group_count", 2U).Set("llama.expert_group_used_count", 1U);
  file.Set("llama.attention.key_length", 8U).Set("llama.attention.value_length", 4U);
  file.RemoveTensor("blk.0.ffn_gate_inp.weight");
  file.Tensor("blk.0.ffn_gate.weight", GGML_TYPE_F16, {32, 96});
  const auto spec = Spec(file, {&family, 1});
  ASSERT_TRUE(spec) << spec.error().message;
  const RouterSpec router{.n_expert = 4,
                          .n_used = 2,
                          .gating = Gating::kSigmoid,
                          .n_group = 2,
                          .n_group_used = 1,
                          .renormalise = true};
  EXPECT_EQ(spec->router, router);
  EXPECT_FALSE(spec->has_experts(0));
  EXPECT_TRUE(spec->has_experts(1));
  EXPECT_EQ(spec->n_expert_layers(), 1U);
  EXPECT_EQ(spec->expert_layers_before(1), 0U);
  EXPECT_EQ(spec->layers.back().feed_forward.n_ff_expert, 64U);
  EXPECT_EQ(spec->layers.front().feed_forward.n_ff_dense, 96U);
  EXPECT_EQ(spec->layers.back().feed_forward.n_ff_shared, 128U);
  EXPECT_EQ(spec->layers.front().attention()->head_dim_k, 8U);
  EXPECT_EQ(spec->layers.front().attention()->head_dim_v, 4U);
  EXPECT_EQ(Spec(LiberalMoe().Set("llama.expert_gating_func", 3U), {&family, 1})->router.gating,
            Gating::kSoftmaxOfChosen);
}

TEST_F(ReadSpecTest, LatentAttentionAndItsScale) {
  const auto plain = [] { return SmallMoe("deepseek2"); };
  const auto spec = Spec(plain());
  const LatentAttentionSpec& latent = *spec->layers.front().latent_attention();
  EXPECT_EQ(latent.n_head, 4U);
  EXPECT_EQ(latent.n_latent, 32U);
  EXPECT_EQ(latent.n_turned, 8U);
  EXPECT_EQ(latent.n_plain, 32U);
  EXPECT_EQ(latent.head_dim_v, 16U);
  EXPECT_EQ(latent.n_query_latent, 32U);
  EXPECT_FLOAT_EQ(latent.scale, 1.0F / std::sqrt(40.0F));
  // The magnitudes that read_mixers.cc computes for YaRN, with a factor of e and a multiplier of
  // 0.7.
  const auto yarn = [&](GgufBuilder file, float factor) {
    file.Set("deepseek2.rope.scaling.type", "yarn").Set("deepseek2.rope.scaling.factor", factor);
    return file;
  };
  constexpr float kE = 2.71828183F;
  const auto scaled =
      Spec(yarn(plain(), kE).Set("deepseek2.rope.scaling.yarn_log_multiplier", 0.07F));
  const LatentAttentionSpec& with = *scaled->layers.front().latent_attention();
  EXPECT_NEAR(with.scale, 1.07F * 1.07F / std::sqrt(40.0F), 1e-5F);
  EXPECT_NEAR(with.rope->attn_factor, 1.0F / 1.1F, 1e-5F);
  const auto unscaled = Spec(yarn(plain(), kE));
  EXPECT_NEAR(unscaled->layers.front().latent_attention()->scale, 1.1F * 1.1F / std::sqrt(40.0F),
              1e-5F);
  EXPECT_NEAR(unscaled->layers.front().latent_attention()->rope->attn_factor, 1.0F, 1e-5F);
  ExpectError(yarn(plain(), kE).Set("deepseek2.rope.scaling.attn_factor", 1e38F),
              Errc::kInvalidFile, "deepseek2.rope.scaling.* give scores no finite scale");
  ExpectError(yarn(plain(), 4.539993e-5F).Set("deepseek2.rope.scaling.yarn_log_multiplier", 0.07F),
              Errc::kInvalidFile, "deepseek2.rope.scaling.* give scores no finite scale");
  ExpectError(plain().Set("deepseek2.rope.dimension_count", 40U), Errc::kInvalidFile,
              "deepseek2.rope.dimension_count is 40, expected an even number below 40");
  ExpectError(plain().Set("deepseek2.attention.temperature_scale", 0.1F), Errc::kUnsupported,
              "scores scaled by position are not supported");
}

TEST_F(ReadSpecTest, IndexersAndWhoSharesThem) {
  const auto plain = [] { return SmallMoe("glm-dsa"); };
  const auto is_shared = [&](const GgufBuilder& file) {
    const auto spec = Spec(file);
    std::vector<bool> shared;
    for (const LayerSpec& layer : spec->layers) {
      shared.push_back(layer.latent_attention()->indexer->is_shared);
    }
    return shared;
  };
  EXPECT_EQ(is_shared(plain()), (std::vector<bool>{false, false}));
  EXPECT_EQ(is_shared(plain().SetInts("glm-dsa.attention.indexer.types", {1, 0})),
            (std::vector<bool>{false, true}));
  ExpectError(plain().SetInts("glm-dsa.attention.indexer.types", {0, 1}), Errc::kInvalidFile,
              "no layer before the first has an indexer");
  // Types for all layers of the file, or for the evaluated layers alone, where some predict further
  // tokens.
  const auto predicting = [&] {
    GgufBuilder file = plain();
    file.Set("glm-dsa.block_count", 3U).Set("glm-dsa.nextn_predict_layers", 1U);
    return file;
  };
  EXPECT_EQ(is_shared(predicting().SetInts("glm-dsa.attention.indexer.types", {1, 0, 1})),
            (std::vector<bool>{false, true}));
  EXPECT_EQ(is_shared(predicting().SetInts("glm-dsa.attention.indexer.types", {1, 0})),
            (std::vector<bool>{false, true}));
  for (const std::vector<int32_t>& types : {std::vector{1}, {1, 0, 1, 1}}) {
    ExpectError(predicting().SetInts("glm-dsa.attention.indexer.types", types), Errc::kInvalidFile,
                "indexer.types");
  }
  ExpectError(plain().Set("glm-dsa.attention.indexer.top_k", 0U), Errc::kInvalidFile,
              "attention.indexer.top_k is 0");
  ExpectError(plain().Set("glm-dsa.attention.indexer.key_length", 4U), Errc::kInvalidFile,
              "attention.indexer.key_length is 4, expected at least 8");
}

TEST_F(ReadSpecTest, RefusesWhatAFamilyCannotBe) {
  const Family liberal = Liberal();
  const std::span<const Family> family(&liberal, 1);
  ExpectError(LiberalMoe().Set("llama.expert_gating_func", 4U), Errc::kUnsupported,
              "expert_gating_func is 4: routers of that kind", family);
  ExpectError(LiberalMoe().Set("llama.expert_group_count", 3U), Errc::kInvalidFile,
              "4 experts cannot form 3 groups", family);
  ExpectError(LiberalMoe().Set("llama.expert_group_count", 4U), Errc::kInvalidFile,
              "groups of at least two", family);
  ExpectError(LiberalMoe().Set("llama.expert_group_count", 2U), Errc::kInvalidFile,
              "expert_group_used_count", family);
  ExpectError(LiberalMoe()
                  .Set("llama.expert_group_count", 2U)
                  .Set("llama.expert_group_used_count", 1U)
                  .Set("llama.expert_used_count", 3U),
              Errc::kInvalidFile, "1 groups of 2 experts hold fewer than the 3 used", family);
  ExpectError(LiberalMoe().Remove("llama.expert_shared_count"), Errc::kInvalidFile,
              "expert_shared_count", family);
  ExpectError(LiberalMoe().RemoveTensor("blk.1.ffn_gate_inp.weight"), Errc::kInvalidFile,
              "layer 1 has neither 'blk.1.ffn_gate_inp.weight' nor 'blk.1.ffn_gate.weight'",
              family);
  GgufBuilder dense = LiberalMoe();
  for (const char* blk : {"blk.0.", "blk.1."}) {
    dense.RemoveTensor(std::string(blk) + "ffn_gate_inp.weight");
    dense.Tensor(std::string(blk) + "ffn_gate.weight", GGML_TYPE_F16, {32, 96});
  }
  ExpectError(dense, Errc::kUnsupported, "no layer has a router", family);
  ExpectError(SmallMoe("olmoe").Set("olmoe.expert_gating_func", 2U), Errc::kUnsupported,
              "expert_gating_func is 2: a router other than softmax");
  ExpectError(SmallMoe("olmoe").Set("olmoe.expert_group_count", 2U), Errc::kUnsupported,
              "expert_group_count is 2: expert groups");
}

// Which layers have a window, as text: w or a dot for each.
std::string WindowsOf(const ModelSpec& spec) {
  std::string text;
  for (const LayerSpec& layer : spec.layers) text += layer.attention()->window > 0 ? 'w' : '.';
  return text;
}

// Builds six layers; ReadSpec() does not look at the tensors that four of them lack.
GgufBuilder Windowed(const std::string& arch) {
  GgufBuilder file = SmallMoe(arch);
  file.Set(arch + ".block_count", 6U);
  for (const char* blk : {"blk.2.", "blk.3.", "blk.4.", "blk.5."}) {
    file.Tensor(std::string(blk) + "ffn_gate_inp.weight", GGML_TYPE_F32, {32, 4});
  }
  return file;
}

TEST_F(ReadSpecTest, ReadsWindows) {
  const auto every_second = Spec(Windowed("gpt-oss").Set("gpt-oss.rope.freq_base_swa", 77.0F));
  ASSERT_TRUE(every_second) << every_second.error().message;
  EXPECT_EQ(WindowsOf(*every_second), "w.w.w.");
  EXPECT_EQ(every_second->layers[0].attention()->window, 16U);
  EXPECT_EQ(every_second->layers[0].attention()->rope->freq_base, 77.0F);
  EXPECT_EQ(every_second->layers[1].attention()->rope->freq_base, 5000.0F);
  const std::string pattern = "gpt-oss.attention.sliding_window_pattern";
  EXPECT_EQ(WindowsOf(*Spec(Windowed("gpt-oss").Set(pattern, 3U))), "ww.ww.");
  EXPECT_EQ(WindowsOf(*Spec(Windowed("gpt-oss").Set(pattern, 0U))), "wwwwww");
  EXPECT_EQ(WindowsOf(*Spec(Windowed("gpt-oss").SetInts(pattern, {0, 1, 1, 0, 0, 1}))), ".ww..w");
  ExpectError(Windowed("gpt-oss").SetInts(pattern, {0, 1, 1}), Errc::kInvalidFile,
              "sliding_window_pattern' has 3 values for 6 layers");
  ExpectError(Windowed("gpt-oss").SetInts(pattern, {0, 1, 1, 0, 0, 7}), Errc::kInvalidFile,
              "sliding_window_pattern is 7 in layer 5, expected 0 to 1");
  ExpectError(Windowed("gpt-oss").Set("gpt-oss.attention.sliding_window", 0U), Errc::kInvalidFile,
              "attention.sliding_window is 0");
  ExpectError(Windowed("gpt-oss").Remove("gpt-oss.attention.sliding_window"), Errc::kInvalidFile,
              "attention.sliding_window");
  const auto rotated_within = Spec(Windowed("exaone-moe"));
  ASSERT_TRUE(rotated_within) << rotated_within.error().message;
  EXPECT_EQ(WindowsOf(*rotated_within), "www.ww");
  EXPECT_TRUE(rotated_within->layers[0].attention()->rope);
  EXPECT_FALSE(rotated_within->layers[3].attention()->rope);
}

TEST_F(ReadSpecTest, ReadsArraysWithAValueForEachLayer) {
  const auto spec = Spec(SmallMoe("llama")
                             .SetInts("llama.attention.head_count", {4, 8})
                             .SetInts("llama.attention.head_count_kv", {2, 1})
                             .SetInts("llama.feed_forward_length", {64, 96}));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->layers[0].attention()->n_head, 4U);
  EXPECT_EQ(spec->layers[1].attention()->n_head, 8U);
  EXPECT_EQ(spec->layers[1].attention()->head_dim_k, 4U);
  EXPECT_EQ(spec->layers[1].attention()->n_head_kv, 1U);
  EXPECT_EQ(spec->layers[0].feed_forward.n_ff_expert, 64U);
  EXPECT_EQ(spec->layers[1].feed_forward.n_ff_expert, 96U);
  for (const char* key :
       {"attention.head_count", "attention.head_count_kv", "feed_forward_length"}) {
    ExpectError(SmallMoe("llama").SetInts(std::string("llama.") + key, {4, 4, 4}),
                Errc::kInvalidFile, std::string(key) + "' has 3 values for 2 layers");
  }
  ExpectError(SmallMoe("llama").SetInts("llama.attention.head_count_kv", {2, 3}),
              Errc::kInvalidFile, "4 heads cannot share 3 key-value heads");
  ExpectError(SmallMoe("llama").SetInts("llama.attention.head_count", {4, -4}), Errc::kInvalidFile,
              "whole numbers");
}

TEST_F(ReadSpecTest, ReadsLayersWithAState) {
  const auto delta = Spec(SmallMoe("qwen35moe"));
  ASSERT_TRUE(delta) << delta.error().message;
  const DeltaNetSpec net{
      .n_head_k = 1, .n_head_v = 2, .head_dim = 32, .n_taps = 4, .sharing = HeadSharing::kInTurn};
  ASSERT_NE(delta->layers[0].delta_net(), nullptr);
  EXPECT_EQ(*delta->layers[0].delta_net(), net);
  EXPECT_NE(delta->layers[1].attention(), nullptr);
  const auto first =
      Spec(SmallMoe("qwen35moe").SetInts("qwen35moe.attention.recurrent_layers", {0, 1}));
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_NE(first->layers[0].attention(), nullptr);
  EXPECT_NE(first->layers[1].delta_net(), nullptr);
  const auto all = Spec(SmallMoe("qwen35moe").Set("qwen35moe.full_attention_interval", 4U));
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_NE(all->layers[1].delta_net(), nullptr);

  const auto hybrid = Spec(SmallMoe("granitehybrid").Set("granitehybrid.residual_scale", 0.5F));
  ASSERT_TRUE(hybrid) << hybrid.error().message;
  ASSERT_NE(hybrid->layers[0].mamba2(), nullptr);
  EXPECT_EQ(hybrid->layers[0].mamba2()->head_dim, 32U);
  EXPECT_EQ(hybrid->router.weight_scale, 0.5F);
  EXPECT_TRUE(hybrid->layers[1].attention()->rope);
  const auto still =
      Spec(SmallMoe("granitehybrid").Set("granitehybrid.rope.scaling.finetuned", false));
  ASSERT_TRUE(still) << still.error().message;
  EXPECT_FALSE(still->layers[1].attention()->rope);
}

TEST_F(ReadSpecTest, ReadsLayersThatAreAMixerOrExpertsAlone) {
  const std::string arch = "nemotron_h_moe";
  const auto spec = Spec(SmallMoe(arch).Set(arch + ".expert_weights_scale", 2.5F));
  ASSERT_TRUE(spec) << spec.error().message;
  ASSERT_EQ(spec->n_layer(), 3U);
  EXPECT_NE(spec->layers[0].mamba2(), nullptr);
  ASSERT_NE(spec->layers[1].attention(), nullptr);
  EXPECT_FALSE(spec->layers[1].attention()->rope);
  EXPECT_FALSE(spec->layers[1].feed_forward.is_there());
  EXPECT_FALSE(spec->layers[2].has_mixer());
  EXPECT_EQ(spec->layers[2].feed_forward,
            (FeedForwardSpec{.n_ff_expert = 64, .n_ff_shared = 96, .n_latent = 32}));
  EXPECT_EQ(spec->n_expert_layers(), 1U);
  EXPECT_EQ(spec->router.weight_scale, 2.5F);
  EXPECT_FALSE(spec->router.renormalise);

  const auto other_name = Spec(SmallMoe(arch)
                                   .Remove(arch + ".attention.layer_norm_rms_epsilon")
                                   .Set(arch + ".attention.layer_norm_epsilon", 3e-5F));
  ASSERT_TRUE(other_name) << other_name.error().message;
  EXPECT_EQ(other_name->rms_eps, 3e-5F);
  ExpectError(SmallMoe(arch).Set(arch + ".moe_latent_size", 64U), Errc::kInvalidFile,
              "moe_latent_size is 64, expected 0 to 32");
  ExpectError(SmallMoe(arch).SetInts(arch + ".attention.head_count_kv", {0, 0, 0}),
              Errc::kInvalidFile, "no layer has attention");
  ExpectError(SmallMoe(arch).SetInts(arch + ".feed_forward_length", {0, 0, 0}), Errc::kInvalidFile,
              "no layer has experts");
  ExpectError(SmallMoe(arch).SetInts(arch + ".feed_forward_length", {0, 64}), Errc::kInvalidFile,
              "feed_forward_length' has 2 values for 3 layers");
}

TEST_F(ReadSpecTest, ReadsWindowsWithHeadsOfTheirOwn) {
  const auto spec = Spec(SmallMoe("gemma4").Set("gemma4.rope.scaling.attn_factor", 1.5F));
  ASSERT_TRUE(spec) << spec.error().message;
  const AttentionSpec& windowed = *spec->layers[0].attention();
  const AttentionSpec& global = *spec->layers[1].attention();
  EXPECT_EQ(windowed.window, 16U);
  EXPECT_EQ(windowed.head_dim_k, 8U);
  EXPECT_EQ(windowed.rope->freq_base, 10000.0F);  // without a key of its own
  EXPECT_EQ(windowed.rope->attn_factor, 1.5F);
  EXPECT_FALSE(windowed.has_rope_factors);
  EXPECT_EQ(global.window, 0U);
  EXPECT_EQ(global.head_dim_k, 16U);
  EXPECT_EQ(global.rope->freq_base, 5000.0F);
  EXPECT_EQ(global.scale, 1.0F);
  EXPECT_EQ(spec->logit_cap, 30.0F);
  EXPECT_EQ(spec->layers[0].feed_forward, (FeedForwardSpec{.n_ff_expert = 64, .n_ff_dense = 96}));
  ExpectError(SmallMoe("gemma4").Set("gemma4.attention.shared_kv_layers", 1U), Errc::kInvalidFile,
              "attention.shared_kv_layers is 1");
  ExpectError(SmallMoe("gemma4").RemoveTensor("rope_freqs.weight"), Errc::kInvalidFile,
              "rope_freqs.weight");
  ExpectError(SmallMoe("gemma4").Set("gemma4.attention.key_length_swa", 0U), Errc::kInvalidFile,
              "attention.key_length_swa is 0");
}

TEST_F(ReadSpecTest, MoreExpertsUsedThanThereAreIsAnErrorForEveryEngine) {
  ExpectError(SmallMoe("llama").Remove("llama.expert_count"), Errc::kInvalidFile,
              "expert_used_count is 2");
}

TEST_F(ReadSpecTest, WidthsOfExpertsMayDifferBetweenLayers) {
  const auto spec =
      Spec(SmallMoe("qwen2moe").SetInts("qwen2moe.expert_feed_forward_length", {64, 32}));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->expert_widths(), (std::vector<uint32_t>{64, 32}));
  ExpectError(SmallMoe("qwen2moe").SetInts("qwen2moe.expert_feed_forward_length", {64}),
              Errc::kInvalidFile, "expert_feed_forward_length' has 1 values for 2 layers");
}

TEST_F(ReadSpecTest, RefusesImpossibleStates) {
  struct Case {
    const char* arch;
    const char* key;
    uint32_t value;
    Errc code;
  };
  constexpr uint32_t kHuge = std::numeric_limits<uint32_t>::max();
  for (const Case& c : {Case{"qwen35moe", "ssm.conv_kernel", 0, Errc::kInvalidFile},
                        {"qwen35moe", "ssm.conv_kernel", 5, Errc::kUnsupported},
                        {"qwen35moe", "ssm.group_count", 0, Errc::kInvalidFile},
                        {"qwen3next", "ssm.group_count", 3, Errc::kInvalidFile},
                        {"qwen3next", "ssm.time_step_rank", kHuge, Errc::kInvalidFile},
                        {"qwen3next", "ssm.inner_size", 65, Errc::kInvalidFile},
                        {"qwen3next", "full_attention_interval", 0, Errc::kInvalidFile},
                        {"granitehybrid", "ssm.inner_size", 63, Errc::kInvalidFile},
                        {"granitehybrid", "ssm.inner_size", 16, Errc::kUnsupported},
                        {"granitehybrid", "ssm.state_size", 24, Errc::kUnsupported},
                        {"granitehybrid", "ssm.group_count", 3, Errc::kInvalidFile},
                        {"lfm2moe", "shortconv.l_cache", 0, Errc::kInvalidFile},
                        {"lfm2moe", "shortconv.l_cache", 5, Errc::kUnsupported},
                        {"lfm2moe", "shortconv.l_cache", kHuge, Errc::kInvalidFile}}) {
    const std::string key = std::string(c.arch) + "." + c.key;
    ExpectError(SmallMoe(c.arch).Set(key, c.value), c.code, c.key);
  }
  // A head of 48 values is no whole number of blocks.
  ExpectError(SmallMoe("qwen35moe")
                  .Set("qwen35moe.ssm.state_size", 48U)
                  .Set("qwen35moe.ssm.inner_size", 96U),
              Errc::kUnsupported, "ssm.state_size");
  ExpectError(SmallMoe("qwen35moe").Remove("qwen35moe.rope.dimension_sections"), Errc::kInvalidFile,
              "rope.dimension_sections");
  ExpectError(SmallMoe("qwen35moe").SetInts("qwen35moe.rope.dimension_sections", {4, 2, 2, 0}),
              Errc::kUnsupported, "rope.dimension_sections");
  ExpectError(SmallMoe("qwen35moe").SetInts("qwen35moe.attention.recurrent_layers", {0, 1, 1}),
              Errc::kInvalidFile, "recurrent_layers");
}

TEST_F(ReadSpecTest, SomeFamiliesMustNameTheirRouter) {
  for (const std::string arch : {"minimax-m2", "bailingmoe2", "exaone-moe"}) {
    ExpectError(SmallMoe(arch).Remove(arch + ".expert_gating_func"), Errc::kInvalidFile,
                arch + ".expert_gating_func");
  }
  const auto glm = Spec(SmallMoe("glm4moe"));
  ASSERT_TRUE(glm) << glm.error().message;
  EXPECT_EQ(glm->router.gating, Gating::kSigmoid);
}

TEST_F(ReadSpecTest, NamesMissingKeys) {
  for (const char* key : {"llama.block_count", "llama.context_length", "llama.embedding_length",
                          "llama.feed_forward_length", "llama.attention.head_count",
                          "llama.expert_used_count", "llama.attention.layer_norm_rms_epsilon"}) {
    ExpectError(SmallMoe("llama").Remove(key), Errc::kInvalidFile, key);
  }
  ExpectError(SmallMoe("llama").RemoveTensor("token_embd.weight"), Errc::kInvalidFile,
              "token_embd.weight");
}

TEST_F(ReadSpecTest, RefusesImpossibleNumbers) {
  struct Case {
    const char* key;
    uint32_t value;
  };
  constexpr uint32_t kHuge = std::numeric_limits<uint32_t>::max();
  for (const Case& c : {Case{"llama.block_count", 0},
                        {"llama.block_count", kHuge},
                        {"llama.embedding_length", 0},
                        {"llama.embedding_length", kHuge},
                        {"llama.embedding_length", 33},  // 4 heads
                        {"llama.context_length", 0},
                        {"llama.context_length", kHuge},
                        {"llama.attention.head_count", 0},
                        {"llama.attention.head_count", kHuge},
                        {"llama.attention.head_count_kv", 0},
                        {"llama.attention.head_count_kv", 3},
                        {"llama.attention.head_count_kv", 8},
                        {"llama.attention.key_length", 0},
                        {"llama.rope.dimension_count", 10},
                        {"llama.rope.dimension_count", 7},
                        {"llama.rope.dimension_count", 0},
                        {"llama.rope.scaling.original_context_length", 0},
                        {"llama.feed_forward_length", 0},
                        {"llama.expert_count", kHuge},
                        {"llama.expert_used_count", 0},
                        {"llama.expert_used_count", 5},
                        {"llama.vocab_size", 299}}) {
    ExpectError(SmallMoe("llama").Set(c.key, c.value), Errc::kInvalidFile,
                std::string(c.key) == "llama.embedding_length" && c.value == 33
                    ? "llama.attention.key_length"
                    : c.key);
  }
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  ExpectError(SmallMoe("llama").Set("llama.attention.layer_norm_rms_epsilon", kNan),
              Errc::kInvalidFile, "epsilon");
  ExpectError(SmallMoe("llama").Set("llama.rope.freq_base", 0.0F), Errc::kInvalidFile, "freq_base");
  ExpectError(SmallMoe("llama").Set("llama.rope.scaling.factor", 1e-42F), Errc::kInvalidFile,
              "scaling.factor");
  ExpectError(SmallMoe("llama").Set("llama.expert_weights_scale", -1.0F), Errc::kInvalidFile,
              "expert_weights_scale");
  ExpectError(SmallMoe("llama").Set("llama.block_count", "two"), Errc::kInvalidFile, "block_count");
}

TEST_F(ReadSpecTest, ComparesTheVocabularyWithTheEmbedding) {
  ExpectError(SmallMoe("llama").SetStrings("tokenizer.ggml.tokens", {"a", "b"}), Errc::kInvalidFile,
              "2 tokens, token_embd.weight has 300 rows");
}

}  // namespace
}  // namespace moestro
