// SPDX-License-Identifier: MIT
#include "model/low_copies.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/text.h"
#include "model/gguf_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kLayers = 2;
constexpr uint32_t kLowExperts = 4;

// Only the experts of SmallMoe("llama").
GgufBuilder SmallLow(ggml_type type = GGML_TYPE_Q4_0) {
  GgufBuilder file;
  file.Set("general.architecture", "llama").Set("llama.block_count", kLayers);
  for (const char* blk : {"blk.0.", "blk.1."}) {
    file.Tensor(std::string(blk) + "ffn_gate_exps.weight", type, {32, 64, kLowExperts})
        .Tensor(std::string(blk) + "ffn_up_exps.weight", type, {32, 64, kLowExperts})
        .Tensor(std::string(blk) + "ffn_down_exps.weight", type, {64, 32, kLowExperts});
  }
  return file;
}

class LowCopiesTest : public testing::Test {
 protected:
  LowCopiesTest() : model_(Model(SmallMoe("llama"))) {}

  ModelFile Model(const GgufBuilder& builder) const {
    builder.Write(folder_.File("model.gguf"));
    auto model = ModelFile::Open(folder_.File("model.gguf"));
    EXPECT_TRUE(model) << model.error().message;
    return *std::move(model);
  }
  Result<LowCopies> Open(const GgufBuilder& low) const {
    low.Write(folder_.File("low.gguf"));
    return OpenLowCopies(folder_.File("low.gguf"), model_);
  }
  void ExpectError(const GgufBuilder& low, Errc code, const std::string& words) const {
    const auto opened = Open(low);
    ASSERT_FALSE(opened) << words;
    EXPECT_EQ(opened.error().code, code) << opened.error().message;
    EXPECT_NE(opened.error().message.find(words), std::string::npos) << opened.error().message;
    EXPECT_NE(opened.error().message.find("low.gguf"), std::string::npos) << opened.error().message;
  }
  std::string Fingerprint() const { return Format("{:016x}", model_.id.fingerprint); }

  TempFolder folder_;
  ModelFile model_;
};

TEST_F(LowCopiesTest, GivesEachExpertItsPlaceInTheFile) {
  const auto low = Open(SmallLow());
  ASSERT_TRUE(low) << low.error().message;
  EXPECT_EQ(low->gguf.paths().front(), folder_.File("low.gguf"));
  ASSERT_EQ(low->layers.size(), kLayers);
  const ExpertMatrix& down = low->layers[1][Matrix::kDown];
  EXPECT_EQ(down.types[0], GGML_TYPE_Q4_0);
  EXPECT_EQ(down.n_in, 64U);
  EXPECT_EQ(down.n_out, 32U);
  EXPECT_EQ(down.slices[0].length, 64U * 32 / 32 * 18);
  ASSERT_EQ(down.slices.size(), kLowExperts);
  const TensorInfo* tensor = low->gguf.Find("blk.1.ffn_down_exps.weight");
  EXPECT_EQ(down.slices[3], (Extent{.file = 0,
                                    .offset = tensor->extent.offset + 3 * down.slices[0].length,
                                    .length = down.slices[0].length}));
  EXPECT_EQ(low->expert_bytes(), kLayers * kLowExperts * 3 * 64 * 32 / 32 * 18);
}

TEST_F(LowCopiesTest, TakesAnOrdinaryFileOfTheSameShape) {
  const auto low = Open(SmallMoe("llama"));
  ASSERT_TRUE(low) << low.error().message;
  EXPECT_EQ(low->layers[0].bytes(), model_.weights.layers[0].experts.bytes());
}

// The form need not be the model's.
TEST_F(LowCopiesTest, TakesFusedAndSingleTensors) {
  GgufBuilder file = SmallLow();
  file.RemoveTensor("blk.0.ffn_gate_exps.weight").RemoveTensor("blk.0.ffn_up_exps.weight");
  file.Tensor("blk.0.ffn_gate_up_exps.weight", GGML_TYPE_Q4_0, {32, 128, kLowExperts});
  file.RemoveTensor("blk.1.ffn_down_exps.weight");
  for (uint32_t e = 0; e < kLowExperts; ++e) {
    file.Tensor(Format("blk.1.ffn_down.{}.weight", e), GGML_TYPE_Q4_0, {64, 32});
  }
  const auto low = Open(file);
  ASSERT_TRUE(low) << low.error().message;
  const LayerExperts& fused = low->layers[0];
  EXPECT_EQ(fused[Matrix::kUp].slices[2].offset,
            fused[Matrix::kGate].slices[2].offset + fused[Matrix::kGate].slices[2].length);
  EXPECT_EQ(low->layers[1][Matrix::kDown].slices[3],
            low->gguf.Find("blk.1.ffn_down.3.weight")->extent);
}

TEST_F(LowCopiesTest, TheFingerprintDecidesWhereThereIsOne) {
  EXPECT_TRUE(Open(SmallLow().Set(kLowFingerprintKey, Fingerprint().c_str())));
  GgufBuilder other = SmallLow();
  other.Set(kLowNameKey, "other.gguf").Set(kLowFingerprintKey, "00000000000000ab");
  ExpectError(other, Errc::kInvalidRequest, "made from other.gguf (fingerprint 00000000000000ab)");
  for (const char* bad : {"", "ab", "00000000000000xy", "000000000000000ab"}) {
    ExpectError(SmallLow().Set(kLowFingerprintKey, bad), Errc::kInvalidFile, "16 hex digits");
  }
  ExpectError(SmallLow().Set(kLowFingerprintKey, 7U), Errc::kInvalidFile, kLowFingerprintKey);
}

TEST_F(LowCopiesTest, OtherModelsAreRefused) {
  ExpectError(SmallLow().Set("general.architecture", "olmoe"), Errc::kInvalidRequest, "'olmoe'");
  ExpectError(SmallLow().Remove("general.architecture"), Errc::kInvalidRequest, "unknown");
  ExpectError(SmallLow().Set("llama.block_count", 3U), Errc::kInvalidRequest, "3 layers");
  ExpectError(SmallLow().Set("llama.expert_count", 8U), Errc::kInvalidRequest, "8 experts");
  ExpectError(SmallLow().Set("llama.embedding_length", 64U), Errc::kInvalidRequest, "64 values");
  ExpectError(SmallLow().Set(kLowVersionKey, kLowVersion + 1), Errc::kUnsupported, "version 2");
}

// Copies of a model that predicts further tokens may count the predicting layers, as the model's
// file does, or leave them out.
TEST(LowCopiesOfAPredictingModel, LayersAreCountedWithThoseAndWithout) {
  const TempFolder folder;
  const auto predicting = [](uint32_t blocks) {
    GgufBuilder file = SmallMoe("glm4moe");
    file.Set("glm4moe.block_count", blocks).Set("glm4moe.nextn_predict_layers", 1U);
    return file;
  };
  predicting(kLayers + 1)
      .Tensor("blk.2.nextn.eh_proj.weight", GGML_TYPE_F16, {64, 32})
      .Write(folder.File("model.gguf"));
  const auto model = ModelFile::Open(folder.File("model.gguf"));
  ASSERT_TRUE(model) << model.error().message;
  for (const uint32_t blocks : {kLayers, kLayers + 1}) {
    SmallMoe("glm4moe").Set("glm4moe.block_count", blocks).Write(folder.File("low.gguf"));
    const auto low = OpenLowCopies(folder.File("low.gguf"), *model);
    ASSERT_TRUE(low) << low.error().message;
    EXPECT_EQ(low->layers.size(), model->spec.n_expert_layers());
  }
  for (const uint32_t blocks : {kLayers - 1, kLayers + 2}) {
    SmallMoe("glm4moe").Set("glm4moe.block_count", blocks).Write(folder.File("low.gguf"));
    EXPECT_FALSE(OpenLowCopies(folder.File("low.gguf"), *model)) << blocks;
  }
}

TEST_F(LowCopiesTest, EveryTensorIsChecked) {
  GgufBuilder missing = SmallLow();
  missing.RemoveTensor("blk.1.ffn_up_exps.weight");
  ExpectError(missing, Errc::kInvalidFile, "'blk.1.ffn_up_exps.weight' is missing");
  ExpectError(missing, Errc::kInvalidFile, "moestro quantize");
  ExpectError(SmallLow().Tensor("blk.0.ffn_up_exps.weight", GGML_TYPE_Q4_0, {32, 96, kLowExperts}),
              Errc::kInvalidFile, "[32, 96, 4]");
  ExpectError(SmallLow().Tensor("blk.0.ffn_up_exps.weight", GGML_TYPE_Q4_0, {32, 64, 3}),
              Errc::kInvalidFile, "[32, 64, 3]");
  ExpectError(SmallLow().Tensor("blk.0.ffn_up_exps.weight", GGML_TYPE_I32, {32, 64, kLowExperts}),
              Errc::kUnsupported, "i32");
}

TEST_F(LowCopiesTest, FilesThatAreNoneAreNamed) {
  const std::string path = folder_.File("low.gguf");
  EXPECT_EQ(OpenLowCopies(path, model_).error().code, Errc::kIo);
  WriteBytes(path, "no GGUF");
  EXPECT_EQ(OpenLowCopies(path, model_).error().code, Errc::kInvalidFile);
  SmallLow().Write(path);
  const std::string whole = ReadBytes(path);
  for (const size_t size : {whole.size() - 600, whole.size() / 2, size_t{100}}) {
    WriteBytes(path, whole.substr(0, size));
    EXPECT_EQ(OpenLowCopies(path, model_).error().code, Errc::kInvalidFile) << size;
  }
}

}  // namespace
}  // namespace moestro
