// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/text.h"
#include "model/gguf_file.h"
#include "model/gguf_testing.h"
#include "model/model_file.h"
#include "model/read_spec.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

constexpr int64_t kWide = 32;
constexpr int64_t kInner = 4 * 16;
constexpr int64_t kWidth = 48;
constexpr int64_t kRows = 300;

// Adds a layer of attention with a feed-forward part; the decoder's first layer has none.
void AddSwitchLayer(GgufBuilder& file, uint32_t layer, bool has_experts, bool has_feed_forward) {
  const auto name = [&](const char* part) { return Format("blk.{}.{}.weight", layer, part); };
  file.Tensor(name("attn_norm"), GGML_TYPE_F32, {kWide});
  for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
    file.Tensor(name(part), GGML_TYPE_F16, {kWide, kInner});
  }
  file.Tensor(name("attn_output"), GGML_TYPE_F16, {kInner, kWide});
  if (!has_feed_forward) return;
  file.Tensor(name("ffn_norm"), GGML_TYPE_F32, {kWide});
  if (!has_experts) {
    file.Tensor(name("ffn_up"), GGML_TYPE_F16, {kWide, kWidth})
        .Tensor(name("ffn_down"), GGML_TYPE_F16, {kWidth, kWide});
    return;
  }
  file.Tensor(name("ffn_gate_inp"), GGML_TYPE_F32, {kWide, 4})
      .Tensor(name("ffn_up_exps"), GGML_TYPE_F16, {kWide, kWidth, 4})
      .Tensor(name("ffn_down_exps"), GGML_TYPE_F16, {kWidth, kWide, 4});
}

// Two layers of an encoder, the second with experts, and a block of a decoder with experts.
GgufBuilder SmallSwitch() {
  GgufBuilder file;
  file.Set("general.architecture", "switch")
      .Set("switch.context_length", 64U)
      .Set("switch.block_count", 2U)
      .Set("switch.decoder_block_count", 1U)
      .Set("switch.embedding_length", static_cast<uint32_t>(kWide))
      .Set("switch.feed_forward_length", static_cast<uint32_t>(kWidth))
      .Set("switch.attention.head_count", 4U)
      .Set("switch.attention.key_length", 16U)
      .Set("switch.attention.value_length", 16U)
      .Set("switch.attention.layer_norm_rms_epsilon", 1e-6F)
      .Set("switch.attention.relative_buckets_count", 32U)
      .Set("switch.attention.relative_max_distance", 128U)
      .Set("switch.expert_count", 4U)
      .Set("switch.expert_used_count", 1U)
      .Set("switch.expert_capacity", 8U)
      .Set("switch.decoder_start_token_id", 0U)
      .Set("switch.vocab_size", static_cast<uint32_t>(kRows))
      .Set("tokenizer.ggml.eos_token_id", 1U)
      .Tensor("token_embd.weight", GGML_TYPE_F16, {kWide, kRows})
      .Tensor("encoder_norm.weight", GGML_TYPE_F32, {kWide})
      .Tensor("output_norm.weight", GGML_TYPE_F32, {kWide})
      .Tensor("blk.0.attn_rel_b.weight", GGML_TYPE_F32, {4, 32})
      .Tensor("blk.2.attn_rel_b.weight", GGML_TYPE_F32, {4, 32});
  AddSwitchLayer(file, 0, false, true);
  AddSwitchLayer(file, 1, true, true);
  AddSwitchLayer(file, 2, false, false);
  AddSwitchLayer(file, 3, true, true);
  return file;
}

class ReadEncoderTest : public ::testing::Test {
 protected:
  Result<ModelSpec> Read(const GgufBuilder& builder) const {
    const std::string path = (folder_.path() / "model.gguf").string();
    builder.Write(path);
    TRY(const GgufFile file, GgufFile::Open(path));
    TRY(ModelSpec spec, ReadSpec(file));
    TRY(const ModelWeights weights, ReadWeights(file, spec));
    return spec;
  }
  void ExpectRefused(const GgufBuilder& builder, const std::string& part) const {
    const auto spec = Read(builder);
    ASSERT_FALSE(spec) << part;
    EXPECT_TRUE(spec.error().message.contains(part)) << spec.error().message;
  }
  TempFolder folder_;
};

TEST_F(ReadEncoderTest, LayersOfBothStacks) {
  const auto spec = Read(SmallSwitch());
  ASSERT_TRUE(spec) << spec.error().message;
  ASSERT_EQ(spec->n_layer(), 4U);
  ASSERT_TRUE(spec->encoder);
  EXPECT_EQ(*spec->encoder,
            (EncoderSpec{.n_layer = 2, .source_end = 1, .target_begin = 0, .capacity = 8}));
  EXPECT_EQ(spec->n_ctx_train, 128U) << "a source and a target";
  EXPECT_EQ(spec->n_expert_layers(), 2U);
  const auto reach = [&](size_t layer) { return spec->layers[layer].attention()->reach; };
  EXPECT_EQ(reach(1), AttentionReach::kSource);
  EXPECT_EQ(reach(2), AttentionReach::kPast);
  EXPECT_EQ(reach(3), AttentionReach::kAcross);
  EXPECT_TRUE(spec->layers[1].attention()->relative->is_two_sided);
  EXPECT_EQ(spec->layers[2].attention()->relative->layer, 2U);
  EXPECT_FALSE(spec->layers[3].attention()->relative);
  EXPECT_FALSE(spec->layers[2].feed_forward.is_there());
  EXPECT_FLOAT_EQ(spec->logit_scale, std::sqrt(32.0F)) << "tied";
  const auto untied = Read(SmallSwitch().Tensor("output.weight", GGML_TYPE_F16, {kWide, kRows}));
  ASSERT_TRUE(untied) << untied.error().message;
  EXPECT_EQ(untied->logit_scale, 1.0F);
}

TEST_F(ReadEncoderTest, NamesEachMissingKey) {
  for (const std::string key :
       {"switch.block_count", "switch.decoder_block_count", "switch.feed_forward_length",
        "switch.attention.head_count", "switch.attention.key_length",
        "switch.attention.layer_norm_rms_epsilon", "switch.attention.relative_buckets_count",
        "switch.attention.relative_max_distance", "switch.expert_used_count"}) {
    ExpectRefused(SmallSwitch().Remove(key), key);
  }
}

TEST_F(ReadEncoderTest, NamesEachMissingTensor) {
  for (const std::string name :
       {"encoder_norm.weight", "output_norm.weight", "blk.0.attn_rel_b.weight",
        "blk.2.attn_rel_b.weight", "blk.1.attn_q.weight", "blk.2.attn_norm.weight",
        "blk.3.attn_v.weight", "blk.3.attn_output.weight", "blk.0.ffn_norm.weight",
        "blk.3.ffn_norm.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight",
        "blk.1.ffn_up_exps.weight", "blk.3.ffn_down_exps.weight"}) {
    ExpectRefused(SmallSwitch().RemoveTensor(name), name);
  }
  ExpectRefused(SmallSwitch().Tensor("blk.2.ffn_up.weight", GGML_TYPE_F16, {kWide, kWidth}),
                "blk.2.ffn_up.weight");
}

TEST_F(ReadEncoderTest, ValuesThatNoModelHas) {
  ExpectRefused(SmallSwitch().Set("switch.decoder_block_count", 0U), "decoder_block_count");
  ExpectRefused(SmallSwitch().Set("switch.block_count", 4'000'000'000U), "block_count");
  ExpectRefused(SmallSwitch().Set("switch.attention.relative_buckets_count", 30U),
                "relative_buckets_count");
  ExpectRefused(SmallSwitch().Set("switch.attention.relative_max_distance", 16U),
                "relative_max_distance");
  ExpectRefused(SmallSwitch().Set("switch.attention.value_length", 32U), "value length");
  ExpectRefused(SmallSwitch().Set("switch.expert_used_count", 2U), "one expert");
  ExpectRefused(SmallSwitch().Set("switch.decoder_start_token_id", 300U), "decoder_start_token_id");
  ExpectRefused(SmallSwitch().Set("tokenizer.ggml.eos_token_id", 4'000'000'000U), "eos_token_id");
  ExpectRefused(SmallSwitch()
                    .RemoveTensor("blk.1.ffn_gate_inp.weight")
                    .RemoveTensor("blk.3.ffn_gate_inp.weight"),
                "no layer has a router");
}

}  // namespace
}  // namespace moestro
