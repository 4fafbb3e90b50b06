// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "model/gguf_testing.h"
#include "model/model_file.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

GgufBuilder V4() { return SmallMoe("deepseek4"); }
std::string V4Key(const std::string& key) { return "deepseek4." + key; }

class ReadPooledTest : public testing::Test {
 protected:
  Result<ModelFile> Open(const GgufBuilder& builder) const {
    builder.Write(folder_.File("model.gguf"));
    return ModelFile::Open(folder_.File("model.gguf"));
  }
  void ExpectError(const GgufBuilder& builder, Errc code, const std::string& words) const {
    const auto model = Open(builder);
    ASSERT_FALSE(model) << words;
    EXPECT_EQ(model.error().code, code) << model.error().message;
    EXPECT_TRUE(model.error().message.contains(words)) << model.error().message;
  }

  TempFolder folder_;
};

TEST_F(ReadPooledTest, LayersHavePoolsOfFewOrManyPositionsOrNone) {
  const auto model = Open(V4());
  ASSERT_TRUE(model) << model.error().message;
  const PooledAttentionSpec* few = model->spec.layers[0].pooled_attention();
  const PooledAttentionSpec* many = model->spec.layers[1].pooled_attention();
  ASSERT_TRUE(few != nullptr && many != nullptr);
  EXPECT_EQ(few->n_pool, 4U);
  EXPECT_TRUE(few->overlaps);
  ASSERT_TRUE(few->indexer);
  EXPECT_EQ(few->indexer->top_k, 4U);
  EXPECT_EQ(few->window, 16U);
  EXPECT_EQ(few->rope.freq_base, 9000.0F);
  EXPECT_EQ(many->n_pool, 128U);
  EXPECT_FALSE(many->overlaps || many->indexer);
  // For each value of a key: three sums, of two pools where they overlap.
  EXPECT_EQ(few->state_values(), 3U * 2 * (32 + 64));
  EXPECT_EQ(many->state_values(), 3U * 32);
  EXPECT_TRUE(model->spec.streams->mixes_head);
  EXPECT_EQ(model->spec.router.gating, Gating::kSoftplusRoot);
  EXPECT_TRUE(model->spec.layers[0].feed_forward.has_token_experts);
  EXPECT_FALSE(model->spec.layers[1].feed_forward.has_token_experts);
  EXPECT_NE(model->weights.layers[0].token_experts, nullptr);
  EXPECT_EQ(model->weights.layers[0].selection_b, nullptr);
  EXPECT_NE(model->weights.layers[1].selection_b, nullptr);
}

// YaRN stretches layers with pools alone, and leaves the size of values as it is.
TEST_F(ReadPooledTest, YarnIsOfLayersWithPools) {
  GgufBuilder file = V4();
  file.Set(V4Key("rope.scaling.type"), "yarn")
      .Set(V4Key("rope.scaling.factor"), 16.0F)
      .SetInts(V4Key("attention.compress_ratios"), {4, 0, 0});  // one more than layers
  for (const char* part : {"kv", "gate", "ape", "norm"}) {
    file.RemoveTensor(std::string("blk.1.attn_compressor_") + part + ".weight");
  }
  const auto model = Open(file);
  ASSERT_TRUE(model) << model.error().message;
  const RopeSpec pools = model->spec.layers[0].pooled_attention()->rope;
  EXPECT_EQ(pools.ext_factor, 1.0F);
  EXPECT_EQ(pools.freq_scale, 1.0F / 16);
  EXPECT_NEAR(pools.attn_factor * (1.0 + 0.1 * std::log(16.0)), 1.0, 1e-6);
  const PooledAttentionSpec* none = model->spec.layers[1].pooled_attention();
  EXPECT_EQ(none->state_values(), 0U);
  EXPECT_EQ(none->rope.ext_factor, 0.0F);
  EXPECT_EQ(none->rope.freq_scale, 1.0F);
  EXPECT_EQ(none->rope.freq_base, 5000.0F);
}

TEST_F(ReadPooledTest, GroupsOfHeadsMayBeOneMatrix) {
  GgufBuilder file = V4();
  file.Tensor("blk.0.attn_output_a.weight", GGML_TYPE_F16, {64, 64});
  EXPECT_TRUE(Open(file));
  file.Tensor("blk.0.attn_output_a.weight", GGML_TYPE_F16, {64, 32});
  ExpectError(file, Errc::kInvalidFile, "attn_output_a");
}

TEST_F(ReadPooledTest, RefusesWhatDoesNotFit) {
  const auto refuse = [&](const char* key, auto value, Errc code = Errc::kInvalidFile) {
    ExpectError(V4().Set(V4Key(key), value), code, V4Key(key));
  };
  refuse("attention.sliding_window", 0U);
  refuse("attention.value_length", 16U);
  refuse("attention.output_group_count", 3U);
  refuse("attention.q_lora_rank", 0U);
  refuse("attention.indexer.key_length", 4U);  // fewer than are turned
  refuse("attention.indexer.top_k", 0U);
  refuse("attention.compress_rope_freq_base", 0.0F);
  refuse("hash_layer_count", 3U);
  refuse("expert_gating_func", 9U, Errc::kUnsupported);
  const std::string ratios = V4Key("attention.compress_ratios");
  ExpectError(V4().SetInts(ratios, {4}), Errc::kInvalidFile, ratios);
  ExpectError(V4().SetInts(ratios, {4, 16}), Errc::kUnsupported, "in layer 1");
  ExpectError(V4().Tensor("blk.0.ffn_gate_tid2eid.weight", GGML_TYPE_F32, {2, 300}),
              Errc::kInvalidFile, "tid2eid");
  ExpectError(V4().Tensor("blk.0.ffn_gate_tid2eid.weight", GGML_TYPE_I32, {2, 299}),
              Errc::kInvalidFile, "tid2eid");
  ExpectError(V4().RemoveTensor("blk.0.ffn_gate_tid2eid.weight"), Errc::kInvalidFile, "tid2eid");
  ExpectError(V4().RemoveTensor("blk.1.exp_probs_b.bias"), Errc::kInvalidFile, "exp_probs_b");
}

}  // namespace
}  // namespace moestro
