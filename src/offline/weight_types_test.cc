// SPDX-License-Identifier: MIT
#include "offline/weight_types.h"

#include <gtest/gtest.h>

#include "model/file_checks.h"

namespace moestro {
namespace {

std::string Parsed(std::string_view text) {
  const auto types = ParseLowTypes(text);
  return types ? types->text() : types.error().message;
}

TEST(LowTypes, OneTypeServesAllMatrices) {
  EXPECT_EQ(Parsed("q2_k"), "gate=q2_K,up=q2_K,down=q2_K");
  EXPECT_EQ(Parsed("IQ4_NL"), "gate=iq4_nl,up=iq4_nl,down=iq4_nl");
}

TEST(LowTypes, EachMatrixMayHaveItsOwn) {
  EXPECT_EQ(Parsed("gate=q2_k,up=Q3_K,down=q4_0"), "gate=q2_K,up=q3_K,down=q4_0");
  EXPECT_EQ(Parsed("down=q4_0,q2_K"), "gate=q2_K,up=q2_K,down=q4_0");
  EXPECT_EQ(Parsed("up=q2_k,down=q4_0"), "up=q2_K,down=q4_0");  // experts without a gate
}

TEST(LowTypes, WhatIsMissingOrUnknownIsNamed) {
  EXPECT_NE(Parsed("q7_x").find("unknown weight type 'q7_x'; known are f32"), std::string::npos);
  EXPECT_NE(Parsed("").find("unknown weight type ''"), std::string::npos);
  EXPECT_NE(Parsed("up=q2_k,").find("unknown weight type ''"), std::string::npos);
  EXPECT_NE(Parsed("gate=q2_k,down=q2_k").find("'up' has no type"), std::string::npos);
  EXPECT_NE(Parsed("side=q2_k").find("gate, up and down"), std::string::npos);
  EXPECT_NE(Parsed("q2_k,q3_k").find("second type"), std::string::npos);
  EXPECT_NE(Parsed("up=q2_k,q4_0,up=q3_k").find("'up' has two types"), std::string::npos);
  EXPECT_EQ(ParseLowTypes("q7_x").error().code, Errc::kUsage);
}

TEST(WeightTypes, EveryTypeLeadsToOneThatFits) {
  EXPECT_EQ(FittingType(GGML_TYPE_Q2_K, 1024), GGML_TYPE_Q2_K);
  EXPECT_EQ(FittingType(GGML_TYPE_Q2_K, 1408), GGML_TYPE_Q4_0);
  EXPECT_EQ(FittingType(GGML_TYPE_IQ2_XXS, 1408), GGML_TYPE_IQ4_NL);
  for (const ggml_type type : MatrixTypes()) {
    for (const int64_t row : {1, 32, 96, 256}) {
      EXPECT_EQ(row % ggml_blck_size(FittingType(type, row)), 0) << ggml_type_name(type);
    }
  }
}

}  // namespace
}  // namespace moestro
