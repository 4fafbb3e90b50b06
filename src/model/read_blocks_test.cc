// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/pool_rule.h"
#include "model/gguf_testing.h"
#include "model/model_file.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

class ReadBlocksTest : public testing::Test {
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

TEST_F(ReadBlocksTest, BlocksWithMeanKeys) {
  const auto model = Open(SmallMoe("qwen4exp"));
  ASSERT_TRUE(model) << model.error().message;
  const AttentionSpec* attention = model->spec.layers[1].attention();
  ASSERT_TRUE(attention != nullptr && attention->indexer);
  EXPECT_TRUE(attention->chooses());
  EXPECT_EQ(attention->indexer->n_pool, 4U);
  EXPECT_EQ(attention->indexer->n_choices(), 1U);
  EXPECT_EQ(attention->n_cell_keys(), attention->n_embd_k() + 16);
  const auto dense = Open(SmallMoe("qwen4exp").Remove("qwen4exp.attention.compress_ratios"));
  ASSERT_TRUE(dense) << dense.error().message;
  EXPECT_FALSE(dense->spec.layers[1].attention()->chooses());
  EXPECT_EQ(dense->spec.layers[1].attention()->n_cell_keys(),
            dense->spec.layers[1].attention()->n_embd_k());
  for (const int32_t ratio : {1, 3}) {
    ExpectError(SmallMoe("qwen4exp").SetInts("qwen4exp.attention.compress_ratios", {0, ratio}),
                Errc::kInvalidFile, "expected one number above 1 that divides 16");
  }
}

TEST_F(ReadBlocksTest, BlocksThatEachHeadChooses) {
  const auto model = Open(SmallMoe("minimax-m3"));
  ASSERT_TRUE(model) << model.error().message;
  const AttentionSpec* attention = model->spec.layers[1].attention();
  ASSERT_TRUE(attention != nullptr && attention->indexer);
  const IndexerSpec& indexer = *attention->indexer;
  EXPECT_EQ(indexer.n_choices(), 2U);
  EXPECT_EQ(indexer.top_k, 16U);  // four blocks of four
  EXPECT_EQ(indexer.n_pool, 4U);
  EXPECT_EQ(indexer.n_last_pools, 1U);
  EXPECT_EQ(attention->n_cell_keys(), attention->n_embd_k() + 16);
  const std::string keys = "minimax-m3.attention.";
  const auto refuse = [&](const std::string& key, uint32_t value, Errc code,
                          const std::string& words) {
    ExpectError(SmallMoe("minimax-m3").Set(keys + key, value), code, words);
  };
  refuse("indexer.local_blocks", 0, Errc::kUnsupported, "their own position");
  refuse("indexer.local_blocks", 5, Errc::kInvalidFile, "local_blocks is 5, expected at most 4");
  refuse("indexer.block_size", 0, Errc::kInvalidFile, "block_size is 0");
  refuse("indexer.block_size", 1U << 30, Errc::kInvalidFile, "indexer.top_k is 4");
  refuse("indexer.head_count", 4, Errc::kInvalidFile, "head_count is 4, expected 2");
  refuse("indexer.key_length", 8, Errc::kInvalidFile, "key_length is 8, expected at least 16");
  for (const char* key : {"block_size", "local_blocks", "top_k", "head_count", "key_length"}) {
    ExpectError(SmallMoe("minimax-m3").Remove(keys + "indexer." + key), Errc::kInvalidFile, key);
  }
}

// Layers without experts attend to all positions, and have no tensors of an indexer.
TEST_F(ReadBlocksTest, LayersWithoutExpertsChooseNothing) {
  GgufBuilder file = SmallMoe("minimax-m3");
  for (const std::string name :
       {"ffn_gate_inp.weight", "exp_probs_b.bias", "ffn_gate_exps.weight", "ffn_up_exps.weight",
        "ffn_down_exps.weight", "ffn_gate_shexp.weight", "ffn_up_shexp.weight",
        "ffn_down_shexp.weight", "indexer.q_proj.weight", "indexer.k_proj.weight",
        "indexer.q_norm.weight", "indexer.k_norm.weight"}) {
    file.RemoveTensor("blk.0." + name);
  }
  file.Set("minimax-m3.feed_forward_length", 96U)
      .Tensor("blk.0.ffn_gate.weight", GGML_TYPE_F16, {32, 96})
      .Tensor("blk.0.ffn_up.weight", GGML_TYPE_F16, {32, 96})
      .Tensor("blk.0.ffn_down.weight", GGML_TYPE_F16, {96, 32});
  const auto model = Open(file);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_FALSE(model->spec.layers[0].attention()->indexer);
  EXPECT_TRUE(model->spec.layers[1].attention()->indexer);
}

TEST(PoolRule, TailBehindTheLastFullPool) {
  const PoolRule rule{.n_pool = 4, .n_chosen = 2};
  EXPECT_FALSE(rule.Chooses(11));  // two pools and three positions
  EXPECT_TRUE(rule.Chooses(12));
  EXPECT_EQ(rule.Attended(12), 8U);
  EXPECT_EQ(rule.Attended(15), 11U);
  EXPECT_EQ(rule.MostAttended(), 11U);
  EXPECT_EQ(rule.Tail(15), 12U);
}

TEST(PoolRule, LastPoolsWithTheRowsOwn) {
  const PoolRule rule{.n_pool = 4, .n_chosen = 2, .n_last = 2};
  EXPECT_EQ(rule.Tail(8), 0U);
  EXPECT_EQ(rule.Tail(9), 4U);
  EXPECT_FALSE(rule.Chooses(16));  // four pools, all of which are attended to
  EXPECT_TRUE(rule.Chooses(17));
  EXPECT_EQ(rule.Pools(17), 3U);
  EXPECT_EQ(rule.Attended(17), 8U + 5U);
  EXPECT_EQ(rule.Attended(20), 16U);
  EXPECT_EQ(rule.MostAttended(), 16U);
}

}  // namespace
}  // namespace moestro
