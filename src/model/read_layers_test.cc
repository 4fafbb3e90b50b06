// SPDX-License-Identifier: MIT
#include "model/read_layers.h"

#include <gtest/gtest.h>

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

// An array with an entry per layer may leave out the layers that are passed over.
TEST_F(ReadLayersTest, ArraysOfTheLayersThatAreEvaluated) {
  const auto with = [](std::vector<int32_t> heads) {
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

}  // namespace
}  // namespace moestro
