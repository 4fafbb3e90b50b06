// SPDX-License-Identifier: MIT
#include "learned/beside_model.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

const ModelId kModel{
    .name = "one.gguf", .fingerprint = 5, .shape = {.n_layer = 2, .n_expert = 8, .n_used = 2}};

TEST(BesideModel, ARenamedModelIsTheSame) {
  ModelId renamed = kModel;
  renamed.name = "two.gguf";
  EXPECT_TRUE(CheckMadeFor(renamed, kModel, "f", "remake it"));
  renamed.fingerprint = 0;
  EXPECT_TRUE(CheckMadeFor(renamed, kModel, "f", "remake it")) << "of a trace from elsewhere";
  EXPECT_TRUE(CheckMadeFor(kModel, renamed, "f", "remake it"));
}

TEST(BesideModel, AnotherModelIsRefusedWithFileModelsAndRemedy) {
  ModelId other = kModel;
  other.name = "two.gguf";
  other.fingerprint = 6;
  const Status refused = CheckMadeFor(other, kModel, "dir/one.gguf.paths", "remake it");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
  for (const char* part : {"dir/one.gguf.paths", "one.gguf (", "two.gguf (", "remake it"}) {
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
}

TEST(BesideModel, AnotherShapeIsAnotherModel) {
  for (uint32_t MoeShape::* const count :
       {&MoeShape::n_layer, &MoeShape::n_expert, &MoeShape::n_used}) {
    ModelId shaped = kModel;
    ++(shaped.shape.*count);
    EXPECT_FALSE(CheckMadeFor(shaped, kModel, "f", "remake it"));
    shaped.fingerprint = 0;
    EXPECT_FALSE(CheckMadeFor(shaped, kModel, "f", "remake it"));
  }
}

}  // namespace
}  // namespace moestro
