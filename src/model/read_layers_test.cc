// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "model/gguf_testing.h"
#include "model/read_spec.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

class ReadLayersTest : public testing::Test {
 protected:
  Result<ModelSpec> Spec(const GgufBuilder& builder) const {
    builder.Write(folder_.File("model.gguf"));
    TRY(const GgufFile file, GgufFile::Open(folder_.File("model.gguf")));
    return ReadSpec(file);
  }
  void ExpectError(const GgufBuilder& builder, Errc code, const std::string& words) const {
    const auto spec = Spec(builder);
    ASSERT_FALSE(spec) << words;
    EXPECT_EQ(spec.error().code, code) << spec.error().message;
    EXPECT_TRUE(spec.error().message.contains(words)) << spec.error().message;
  }

  TempFolder folder_;
};

// Ling 3 with a layer that is passed over.
GgufBuilder Ling() {
  GgufBuilder file = SmallMoe("bailingmoe3");
  file.Set("bailingmoe3.block_count", 3U)
      .Set("bailingmoe3.nextn_predict_layers", 1U)
      .SetInts("bailingmoe3.attention.head_count_kv", {0, 2, 2})
      .Tensor("blk.2.nextn.eh_proj.weight", GGML_TYPE_F16, {64, 32})
      .Tensor("blk.2.layer_output_norm.weight", GGML_TYPE_F32, {32});
  return file;
}

TEST_F(ReadLayersTest, CountsLayersThatPredictFurtherTokens) {
  ExpectError(SmallMoe("llama").Set("llama.nextn_predict_layers", 1U), Errc::kUnsupported,
              "nextn_predict_layers is 1");
  ExpectError(SmallMoe("glm4moe").Set("glm4moe.nextn_predict_layers", 2U), Errc::kInvalidFile,
              "nextn_predict_layers is 2 of 2 layers");
  // A key that counts a layer of the model.
  ExpectError(SmallMoe("glm4moe").Set("glm4moe.nextn_predict_layers", 1U), Errc::kInvalidFile,
              "layer 1 predicts no further tokens");
  ExpectError(SmallMoe("glm4moe")
                  .Set("glm4moe.block_count", 3U)
                  .Set("glm4moe.nextn_predict_layers", 2U)
                  .Tensor("blk.2.nextn.eh_proj.weight", GGML_TYPE_F16, {64, 32}),
              Errc::kInvalidFile, "layer 1 predicts no further tokens");
  // A file may lack the predicting layers' tensors.
  const auto without = Spec(
      SmallMoe("glm4moe").Set("glm4moe.block_count", 3U).Set("glm4moe.nextn_predict_layers", 1U));
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(without->n_layer(), 2U);
}

TEST_F(ReadLayersTest, ALayerThatPredictsIsTheLastOneWhereItIsAskedFor) {
  const auto predicting = [this](const GgufBuilder& builder) -> Result<ModelSpec> {
    builder.Write(folder_.File("model.gguf"));
    TRY(const GgufFile file, GgufFile::Open(folder_.File("model.gguf")));
    return ReadSpec(file, Families(), NextTokens::kRead);
  };
  const auto two = [] {
    GgufBuilder file = SmallMoe("glm4moe");
    file.Set("glm4moe.block_count", 4U)
        .Set("glm4moe.nextn_predict_layers", 2U)
        .SetInts("glm4moe.attention.head_count_kv", {2, 1})
        .Tensor("blk.2.ffn_gate_inp.weight", GGML_TYPE_F32, {32, 4})
        .Tensor("blk.2.nextn.eh_proj.weight", GGML_TYPE_F16, {64, 32})
        .Tensor("blk.3.nextn.eh_proj.weight", GGML_TYPE_F16, {64, 32});
    return file;
  };
  const auto spec = predicting(two());
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_TRUE(spec->predicts());
  EXPECT_EQ(spec->n_layer(), 3U);
  EXPECT_EQ(spec->n_main_layer(), 2U);
  EXPECT_EQ(spec->n_next_token_layers, 1U);
  EXPECT_TRUE(spec->layers[2].predicts);
  EXPECT_FALSE(spec->layers[1].predicts);
  EXPECT_EQ(spec->layers[2].attention()->n_head_kv, 1U);
  EXPECT_EQ(spec->n_expert_layers(), spec->n_main_expert_layers() + 1);
  EXPECT_FALSE(Spec(two())->predicts());

  const auto refusal = [&](const GgufBuilder& builder) {
    const auto read = predicting(builder);
    return read ? std::string("read") : read.error().message;
  };
  EXPECT_TRUE(refusal(SmallMoe("glm4moe")).contains("no layer of the file predicts"));
  EXPECT_TRUE(refusal(Ling()).contains("passed over in architecture bailingmoe3"));
  const std::string without = refusal(
      SmallMoe("glm4moe").Set("glm4moe.block_count", 3U).Set("glm4moe.nextn_predict_layers", 1U));
  EXPECT_TRUE(without.contains("blk.2.nextn.eh_proj.weight")) << without;
}

// An array with an entry per layer may leave out the layers that are passed over.
TEST_F(ReadLayersTest, ArraysOfTheLayersThatAreEvaluated) {
  const auto with = [](const std::vector<int32_t>& heads) {
    GgufBuilder file = SmallMoe("glm4moe");
    file.Set("glm4moe.block_count", 3U)
        .Set("glm4moe.nextn_predict_layers", 1U)
        .SetInts("glm4moe.attention.head_count_kv", heads);
    return file;
  };
  for (const std::vector<int32_t>& heads : {std::vector{2, 1}, {2, 1, 1}}) {
    const auto spec = Spec(with(heads));
    ASSERT_TRUE(spec) << spec.error().message;
    EXPECT_EQ(spec->layers[1].attention()->n_head_kv, 1U);
  }
  ExpectError(with({2}), Errc::kInvalidFile, "head_count_kv");
  ExpectError(with({2, 1, 1, 1}), Errc::kInvalidFile, "head_count_kv");
}

TEST_F(ReadLayersTest, DecaysWithABoundAndGatesOfHeads) {
  const auto spec = Spec(Ling());
  ASSERT_TRUE(spec) << spec.error().message;
  ASSERT_EQ(spec->n_layer(), 2U);
  EXPECT_EQ(spec->n_next_token_layers, 1U);
  const DeltaNetSpec* delta = spec->layers[0].delta_net();
  ASSERT_NE(delta, nullptr);
  EXPECT_TRUE(delta->decays_values && delta->has_whole_gates);
  EXPECT_EQ(delta->decay_bound, -5.0F);
  const LatentAttentionSpec* latent = spec->layers[1].latent_attention();
  ASSERT_NE(latent, nullptr);
  EXPECT_TRUE(latent->has_gates && latent->rope);
  const std::string bound = "bailingmoe3.kda.gate_lower_bound";
  ExpectError(Ling().Remove(bound), Errc::kInvalidFile, bound);
  ExpectError(Ling().Set(bound, 0.0F), Errc::kInvalidFile, bound);
  ExpectError(Ling().Set(bound, std::nanf("")), Errc::kInvalidFile, bound);
  ExpectError(Ling().Set("bailingmoe3.kda.safe_gate", false), Errc::kUnsupported, "safe_gate");
  EXPECT_TRUE(Spec(Ling().Set("bailingmoe3.kda.safe_gate", true)));
}

// YaRN makes rotated values larger, and the scale of scores stays.
TEST_F(ReadLayersTest, YarnLeavesTheScaleOfScores) {
  const auto scale = [this](float factor) {
    GgufBuilder file = Ling();
    if (factor > 0.0F) {
      file.Set("bailingmoe3.rope.scaling.type", "yarn")
          .Set("bailingmoe3.rope.scaling.factor", factor);
    }
    const auto spec = Spec(file);
    EXPECT_TRUE(spec) << spec.error().message;
    return spec ? spec->layers[1].latent_attention()->scale : 0.0F;
  };
  EXPECT_GT(scale(0.0F), 0.0F);
  EXPECT_EQ(scale(4.0F), scale(0.0F));
}

TEST_F(ReadLayersTest, PoolsOfPositionsAndStreams) {
  const auto glm = [] { return SmallMoe("glm5-next"); };
  const auto spec = Spec(glm());
  ASSERT_TRUE(spec) << spec.error().message;
  const DeltaNetSpec* delta = spec->layers[0].delta_net();
  ASSERT_NE(delta, nullptr);
  EXPECT_EQ(delta->decay_bound, -5.0F);
  EXPECT_TRUE(delta->has_negative_rates);
  EXPECT_EQ(delta->key_eps, 1e-6F);
  const LatentAttentionSpec* latent = spec->layers[1].latent_attention();
  ASSERT_NE(latent, nullptr);
  EXPECT_EQ(latent->n_turned, 0U);
  EXPECT_EQ(latent->n_key(), latent->n_latent);
  ASSERT_TRUE(latent->has_own_pools());
  EXPECT_EQ(latent->indexer->n_pool, 4U);
  EXPECT_EQ(latent->indexer->eps, 1e-6F);
  const auto other = Spec(glm().Set("glm5-next.attention.layer_norm_epsilon", 0.5F));
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(other->layers[1].latent_attention()->indexer->eps, 0.5F);
  EXPECT_EQ(latent->indexer->n_remembered(), 2 * latent->indexer->head_dim);
  ASSERT_TRUE(spec->streams);
  EXPECT_EQ(spec->streams->n_streams, 4U);
  EXPECT_EQ(spec->n_residual(), 4 * spec->n_embd);
  EXPECT_TRUE(spec->ends_in_next(0));
  // A file may lack the bound of decays: rates are then those of the file.
  const auto free = Spec(glm().Remove("glm5-next.kda.gate_lower_bound"));
  ASSERT_TRUE(free) << free.error().message;
  EXPECT_EQ(free->layers[0].delta_net()->decay_bound, 0.0F);
  EXPECT_FALSE(free->layers[0].delta_net()->has_negative_rates);
  const auto refuse = [&](const char* key, auto value, Errc code) {
    const std::string name = std::string("glm5-next.") + key;
    ExpectError(glm().Set(name, value), code, name);
  };
  refuse("rope.dimension_count", 8U, Errc::kInvalidFile);
  refuse("attention.indexer.kpool", 1U, Errc::kInvalidFile);
  refuse("attention.indexer.kpool", 3U, Errc::kInvalidFile);
  refuse("attention.indexer.kpool_select_tail", false, Errc::kUnsupported);
  refuse("hyper_connection.count", 0U, Errc::kInvalidFile);
  refuse("hyper_connection.sinkhorn_iterations", 0U, Errc::kInvalidFile);
  refuse("hyper_connection.epsilon", -1.0F, Errc::kInvalidFile);
  for (const char* key : {"hyper_connection.count", "hyper_connection.sinkhorn_iterations",
                          "hyper_connection.epsilon", "attention.indexer.kpool"}) {
    const std::string name = std::string("glm5-next.") + key;
    ExpectError(glm().Remove(name), Errc::kInvalidFile, name);
  }
  // The first layer with attention has no other's choice; that of a state is none.
  const std::string types = "glm5-next.attention.indexer.types";
  ExpectError(glm().SetInts(types, {1, 0}), Errc::kInvalidFile, types);
  EXPECT_TRUE(Spec(glm().SetInts(types, {0, 1})));
}

TEST_F(ReadLayersTest, OneLimitForAll) {
  GgufBuilder file = SmallMoe("glm5-next");
  file.SetFloats("glm5-next.swiglu_clamp_exp", {0, 4});
  const auto one = Spec(file);
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ(one->layers[1].feed_forward.limit_shared, 4.0F);
  file.SetFloats("glm5-next.swiglu_clamp_shexp", {0, 7});
  const auto two = Spec(file);
  ASSERT_TRUE(two) << two.error().message;
  EXPECT_EQ(two->layers[1].feed_forward.limit_expert, 4.0F);
  EXPECT_EQ(two->layers[1].feed_forward.limit_shared, 7.0F);
}

TEST_F(ReadLayersTest, LimitsOfGatesInEachLayer) {
  const std::string of_experts = "bailingmoe3.swiglu_clamp_exp";
  const auto limits = [this](const GgufBuilder& file) {
    const auto spec = Spec(file);
    EXPECT_TRUE(spec) << spec.error().message;
    std::vector<float> found;
    if (!spec) return found;
    for (const LayerSpec& layer : spec->layers) {
      found.push_back(layer.feed_forward.limit_expert);
      found.push_back(layer.feed_forward.limit_shared);
    }
    return found;
  };
  EXPECT_EQ(limits(Ling()), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(limits(Ling().SetFloats(of_experts, {1e-7F, 4, 0})), (std::vector<float>{0, 0, 4, 0}));
  EXPECT_EQ(limits(Ling().SetFloats(of_experts, {4, 0})), (std::vector<float>{4, 0, 0, 0}));
  EXPECT_EQ(limits(Ling().Set("bailingmoe3.swiglu_clamp_shexp", 7.0F)),
            (std::vector<float>{0, 7, 0, 7}));
  ExpectError(Ling().SetFloats(of_experts, {4}), Errc::kInvalidFile, of_experts);
  ExpectError(Ling().SetFloats(of_experts, {4, -4, 0}), Errc::kInvalidFile, "in layer 1");
  ExpectError(Ling().SetFloats(of_experts, {4, std::nanf(""), 0}), Errc::kInvalidFile,
              "in layer 1");
}

}  // namespace
}  // namespace moestro
