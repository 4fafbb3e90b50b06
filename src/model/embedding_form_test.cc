// SPDX-License-Identifier: MIT
#include "model/embedding_form.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "model/gguf_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

class EmbeddingFormTest : public ::testing::Test {
 protected:
  Result<EmbeddingForm> Read(const GgufBuilder& file) const {
    const std::string path = (folder_.path() / "model.gguf").string();
    file.Write(path);
    TRY(const GgufFile opened, GgufFile::Open(path));
    return ReadEmbeddingForm(opened);
  }

  TempFolder folder_;
};

TEST_F(EmbeddingFormTest, AModelOfTextGivesNone) {
  const auto form = Read(SmallMoe("olmoe"));
  ASSERT_TRUE(form) << form.error().message;
  EXPECT_FALSE(form->gives_embeddings());
  EXPECT_TRUE(form->is_causal);
  EXPECT_EQ(form->n_embd, 32U);
  EXPECT_TRUE(NoEmbeddingsText(form->pooling).contains("names no pooling"));
}

TEST_F(EmbeddingFormTest, ThePoolingIsTheFiles) {
  constexpr Pooling kAll[] = {Pooling::kNone, Pooling::kMean, Pooling::kCls, Pooling::kLast,
                              Pooling::kRank};
  for (uint32_t value = 0; value < std::size(kAll); ++value) {
    auto file = SmallMoe("olmoe");
    file.Set("olmoe.pooling_type", value);
    const auto form = Read(file);
    ASSERT_TRUE(form) << form.error().message;
    EXPECT_EQ(form->pooling, kAll[value]);
    EXPECT_EQ(form->gives_embeddings(), value >= 1 && value <= 3) << value;
    EXPECT_EQ(form->may_split(), value == 3) << value;
  }
  EXPECT_TRUE(NoEmbeddingsText(Pooling::kRank).contains("'rank'"));
}

// Its last token has not seen those of a later piece.
TEST_F(EmbeddingFormTest, ATextWhoseTokensSeeLaterOnesIsNotSplit) {
  auto file = SmallMoe("olmoe");
  file.Set("olmoe.pooling_type", 3U).Set("olmoe.attention.causal", false);
  const auto form = Read(file);
  ASSERT_TRUE(form) << form.error().message;
  EXPECT_TRUE(form->gives_embeddings());
  EXPECT_FALSE(form->may_split());
}

TEST_F(EmbeddingFormTest, AVectorMayBeOfAnotherWidthThanTheModel) {
  auto file = SmallMoe("olmoe");
  file.Set("olmoe.pooling_type", 1U).Set("olmoe.embedding_length_out", 16U);
  const auto form = Read(file);
  ASSERT_TRUE(form) << form.error().message;
  EXPECT_EQ(form->n_embd, 16U);
}

TEST_F(EmbeddingFormTest, LibllamasUnspecifiedPoolingIsNone) {
  auto file = SmallMoe("olmoe");
  file.Set("olmoe.pooling_type", UINT32_MAX);
  const auto form = Read(file);
  ASSERT_TRUE(form) << form.error().message;
  EXPECT_EQ(form->pooling, Pooling::kNone);
}

TEST_F(EmbeddingFormTest, APoolingThatLibllamaLacksIsDamage) {
  auto file = SmallMoe("olmoe");
  file.Set("olmoe.pooling_type", 5U);
  const auto form = Read(file);
  ASSERT_FALSE(form);
  EXPECT_EQ(form.error().code, Errc::kInvalidFile);
  EXPECT_TRUE(form.error().message.contains("olmoe.pooling_type is 5, at most 4"));
}

}  // namespace
}  // namespace moestro
