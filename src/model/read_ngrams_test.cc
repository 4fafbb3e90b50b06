// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "model/gguf_testing.h"
#include "model/model_file.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

class ReadNgramsTest : public testing::Test {
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

TEST_F(ReadNgramsTest, OneLayerTakesInNgramsOfATableOnTheDisk) {
  const auto model = Open(SmallMoe("qwen4exp"));
  ASSERT_TRUE(model) << model.error().message;
  const ModelSpec& spec = model->spec;
  ASSERT_TRUE(spec.ngrams);
  EXPECT_EQ(spec.ngrams->n_most, 3U);
  EXPECT_EQ(spec.ngrams->n_heads(), 2U);
  EXPECT_EQ(spec.ngrams->factors, (std::vector<uint64_t>{3, 5, 7}));
  EXPECT_EQ(spec.ngrams->heads[1], (NgramSpec::Head{.first = 32, .count = 37}));
  EXPECT_EQ(spec.ngrams->n_rows, 70U);
  EXPECT_EQ(spec.ngrams->n_history(), 9U);
  EXPECT_EQ(spec.n_residual(), 64U);
  EXPECT_EQ(spec.layers[0].ngram_values, 9U * 64);
  EXPECT_EQ(spec.layers[1].ngram_values, 0U);
  ASSERT_NE(model->weights.ngram_table, nullptr);
  const auto dense = model->weights.dense_tensors();
  EXPECT_EQ(std::ranges::count(dense, model->weights.ngram_table), 0);
}

TEST_F(ReadNgramsTest, AFileWithoutNgramsIsTakenAndPartsOfThemAreNot) {
  GgufBuilder without = SmallMoe("qwen4exp");
  without.Remove("qwen4exp.ple.layers").RemoveTensor("per_layer_token_embd.weight");
  for (const char* tensor :
       {"ple_key", "ple_value", "ple_norm_key", "ple_norm_query", "ple_norm_conv", "ple_conv1d"}) {
    without.RemoveTensor(std::string("blk.0.") + tensor + ".weight");
  }
  const auto model = Open(without);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_FALSE(model->spec.ngrams);
  ExpectError(SmallMoe("qwen4exp").Remove("qwen4exp.ple.layers"), Errc::kInvalidFile,
              "per_layer_token_embd.weight' has shape");
  ExpectError(SmallMoe("qwen4exp").RemoveTensor("per_layer_token_embd.weight"), Errc::kInvalidFile,
              "per_layer_token_embd.weight' is missing");
  ExpectError(SmallMoe("qwen4exp").SetInts("qwen4exp.ple.layers", {1}), Errc::kInvalidFile,
              "names layer 1, which is no delta net");
  ExpectError(SmallMoe("qwen4exp").SetInts("qwen4exp.ple.layers", {0, 1}), Errc::kUnsupported,
              "several layers with n-grams");
  ExpectError(SmallMoe("qwen4exp").SetInts("qwen4exp.ple.head_vocab_sizes", {31, 39}),
              Errc::kInvalidFile, "the table has 70");
  ExpectError(SmallMoe("qwen4exp").SetInts("qwen4exp.ple.head_vocab_sizes", {31, 0}),
              Errc::kInvalidFile, "head 1 rows 32 to 32");
  ExpectError(SmallMoe("qwen4exp").SetInts("qwen4exp.ple.head_offsets", {0}), Errc::kInvalidFile,
              "no array of at least 2 numbers");
  ExpectError(SmallMoe("qwen4exp").SetInts("qwen4exp.ple.layer_multipliers", {3, -5, 7}),
              Errc::kInvalidFile, "no whole number");
  ExpectError(SmallMoe("qwen4exp").Set("qwen4exp.ple.conv_kernel", 1U), Errc::kInvalidFile,
              "ple.conv_kernel");
  ExpectError(SmallMoe("qwen4exp").Set("qwen4exp.ple.eos_token_id", 300U), Errc::kInvalidFile,
              "ple.eos_token_id");
}

}  // namespace
}  // namespace moestro
