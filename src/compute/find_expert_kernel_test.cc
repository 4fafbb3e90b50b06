// SPDX-License-Identifier: MIT
// The kernel that FindExpertKernel() gives each type.
#include <gtest/gtest.h>

#include <string>

#include "compute/cpu_device.h"
#include "compute/expert_kernel.h"
#include "compute/kernels/isa.h"

namespace moestro {
namespace {

TEST(FindExpertKernel, RefusesTypesWithoutDotProduct) {
  for (const ggml_type type : {GGML_TYPE_I32, GGML_TYPE_Q8_K, GGML_TYPE_F64}) {
    const auto kernel = FindExpertKernel(type);
    ASSERT_FALSE(kernel.has_value());
    EXPECT_EQ(kernel.error().code, Errc::kUnsupported);
    EXPECT_NE(kernel.error().message.find(ggml_type_name(type)), std::string::npos);
  }
  EXPECT_FALSE(FindExpertKernel(GGML_TYPE_COUNT).has_value());
}

TEST(FindExpertKernel, WithoutOwnKernelsAnswersGgml) {
  EXPECT_STREQ(FindExpertKernel(GGML_TYPE_Q4_0, false).value().name, "ggml");
}

TEST(FindExpertKernel, PicksTheLastInstructionSetThatWorks) {
  std::string best = "ggml";
  for (const Isa& isa : IsasHere()) {
    if (isa.kernels->experts != nullptr) best = isa.name;
  }
  for (const ggml_type type :
       {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0,
        GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4, GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q4_K,
        GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_IQ4_XS, GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ3_S,
        GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_S}) {
    EXPECT_EQ(FindExpertKernel(type).value().name, best) << ggml_type_name(type);
  }
}

TEST(GenericKernel, NeedsThePluginsSymbol) {
  EXPECT_FALSE(GenericKernel(GGML_TYPE_Q4_0, CpuTraits::Missing()).has_value());
}

}  // namespace
}  // namespace moestro
