// SPDX-License-Identifier: MIT
#include "offline/synth/synth_types.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

ggml_type TypeOf(const char* scheme, MatrixContext place) {
  return TypeFor(FindScheme(scheme).value(), place);
}

TEST(SynthTypes, NamesIgnoreCaseAndUnknownOnesListTheRest) {
  EXPECT_EQ(FindScheme("q4_k_m").value().name, "Q4_K_M");
  EXPECT_EQ(FindScheme("mxfp4").value().base, GGML_TYPE_MXFP4);
  const auto unknown = FindScheme("Q9_9");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, Errc::kUsage);
  for (const std::string& name : SchemeNames()) {
    EXPECT_NE(unknown.error().message.find(name), std::string::npos) << name;
  }
}

TEST(SynthTypes, OneTypeIsOneTypeForEveryRole) {
  for (const MatrixRole role : {MatrixRole::kTokenEmbd, MatrixRole::kOutput, MatrixRole::kAttnV,
                                MatrixRole::kExpertDown, MatrixRole::kSharedDown}) {
    EXPECT_EQ(TypeOf("Q3_K", {.role = role, .row = 512}), GGML_TYPE_Q3_K);
  }
}

TEST(SynthTypes, RowsThatAreNoMultipleOfABlockFallBack) {
  const auto fallen = [](const char* scheme, int64_t row) {
    return TypeOf(scheme, {.role = MatrixRole::kExpertDown, .row = row});
  };
  EXPECT_EQ(fallen("Q2_K", 1408), GGML_TYPE_Q4_0);
  EXPECT_EQ(fallen("Q3_K", 1408), GGML_TYPE_Q4_0);
  EXPECT_EQ(fallen("IQ4_XS", 1408), GGML_TYPE_IQ4_NL);
  EXPECT_EQ(fallen("Q4_K", 1408), GGML_TYPE_Q5_0);
  EXPECT_EQ(fallen("Q5_K", 1408), GGML_TYPE_Q5_1);
  EXPECT_EQ(fallen("Q6_K", 1408), GGML_TYPE_Q8_0);
  EXPECT_EQ(fallen("Q4_K", 1536), GGML_TYPE_Q4_K);
  EXPECT_EQ(fallen("Q8_0", 100), GGML_TYPE_F16);
  EXPECT_EQ(fallen("Q4_K", 100), GGML_TYPE_F16);
}

TEST(SynthTypes, MxFp4IsForExpertsOnly) {
  EXPECT_EQ(TypeOf("MXFP4", {.role = MatrixRole::kExpertGateUp, .row = 256}), GGML_TYPE_MXFP4);
  EXPECT_EQ(TypeOf("MXFP4", {.role = MatrixRole::kExpertDown, .row = 96}), GGML_TYPE_MXFP4);
  EXPECT_EQ(TypeOf("MXFP4", {.role = MatrixRole::kAttnQ, .row = 256}), GGML_TYPE_Q8_0);
  EXPECT_EQ(TypeOf("MXFP4", {.role = MatrixRole::kSharedDown, .row = 256}), GGML_TYPE_Q8_0);
}

TEST(SynthTypes, TheMixGivesAboutHalfOfTheDownMatricesMoreBits) {
  int more = 0;
  for (uint32_t layer = 0; layer < 48; ++layer) {
    const ggml_type type = TypeOf("Q4_K_M", {.role = MatrixRole::kExpertDown,
                                             .layer = layer,
                                             .layers = 48,
                                             .experts = 128,
                                             .row = 768});
    more += type == GGML_TYPE_Q6_K;
  }
  EXPECT_EQ(more, 24);
}

}  // namespace
}  // namespace moestro
