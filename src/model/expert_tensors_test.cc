// SPDX-License-Identifier: MIT
#include "model/expert_tensors.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/gguf_testing.h"
#include "model/model_file.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

class FittedTest : public testing::Test {
 protected:
  Result<ModelFile> Open(const GgufBuilder& builder) const {
    const std::string path = folder_.File("fitted.gguf");
    builder.Write(path);
    return ModelFile::Open(path);
  }
  void ExpectError(const GgufBuilder& builder, Errc code, const std::string& words) const {
    const auto opened = Open(builder);
    ASSERT_FALSE(opened) << words;
    EXPECT_EQ(opened.error().code, code) << opened.error().message;
    EXPECT_NE(opened.error().message.find(words), std::string::npos) << opened.error().message;
  }

  TempFolder folder_;
};

TEST_F(FittedTest, EachExpertHasItsOwnTypeAndPlace) {
  const auto model = Open(SmallFitted());
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_TRUE(model->weights.fit);
  EXPECT_EQ(model->weights.fit->source_fingerprint, 0x0123456789abcdefU);
  const ExpertMatrix& down = model->weights.layers[0].experts[Matrix::kDown];
  const Extent high = model->gguf.Find("blk.0.ffn_down_exps.weight")->extent;
  const Extent low = model->gguf.Find("blk.0.ffn_down_exps_low.weight")->extent;
  const std::vector<ggml_type> types{GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_0,
                                     GGML_TYPE_Q8_0};
  EXPECT_EQ(down.types, types);
  EXPECT_EQ(down.slices[0].offset, high.offset);
  EXPECT_EQ(down.slices[1].offset, low.offset);
  EXPECT_EQ(down.slices[2].offset, low.offset + low.length / 2);
  EXPECT_EQ(down.slices[3].offset, high.offset + high.length / 2);
  EXPECT_EQ(down.slices[3].length, high.length / 2);
  EXPECT_EQ(down.slices[2].length, low.length / 2);
  EXPECT_EQ(model->weights.layers[1].experts[Matrix::kUp].slices.size(), 4U);
}

TEST_F(FittedTest, AnOrdinaryModelIsNone) {
  const auto model = Open(SmallMoe("olmoe"));
  ASSERT_TRUE(model);
  EXPECT_FALSE(model->weights.fit);
  EXPECT_TRUE(CheckIsNotFitted(model->weights.fit, "m.gguf", "fit"));
}

TEST_F(FittedTest, RefusesAnIndexThatDoesNotFitTheTensors) {
  ExpectError(SmallFitted().Set(kFitWidthKey, "0110"), Errc::kInvalidFile, "4 widths");
  ExpectError(SmallFitted().Set(kFitWidthKey, "011000000"), Errc::kInvalidFile, "9 widths");
  ExpectError(SmallFitted().Set(kFitWidthKey, "01200000"), Errc::kInvalidFile, "'2' at 2");
  ExpectError(SmallFitted().Set(kFitWidthKey, "01110000"), Errc::kInvalidFile,
              "blk.0.ffn_gate_exps.weight");
  ExpectError(SmallFitted().Set(kFitWidthKey, "01100001"), Errc::kInvalidFile,
              "blk.1.ffn_gate_exps.weight");
  ExpectError(SmallFitted().Set(kFitWidthKey, "00000000"), Errc::kInvalidFile, "blk.0");
  ExpectError(SmallFitted().RemoveTensor("blk.0.ffn_up_exps_low.weight"), Errc::kInvalidFile,
              "blk.0.ffn_up_exps_low.weight");
}

TEST_F(FittedTest, RefusesKeysThatAreMissingOrNewer) {
  ExpectError(SmallFitted().Remove(kFitWidthKey), Errc::kInvalidFile, kFitWidthKey);
  ExpectError(SmallFitted().Remove(kFitNameKey), Errc::kInvalidFile, kFitNameKey);
  ExpectError(SmallFitted().Set(kFitFingerprintKey, "12"), Errc::kInvalidFile, "16 hex digits");
  ExpectError(SmallFitted().Set(kFitVersionKey, kFitVersion + 1), Errc::kUnsupported,
              "newer moestro");
}

}  // namespace
}  // namespace moestro
