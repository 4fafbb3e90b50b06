// SPDX-License-Identifier: MIT
#include "model/fingerprint.h"

#include <gtest/gtest.h>

#include <string>

#include "model/test_gguf.h"
#include "tests/support/temp_folder.h"

namespace moestro {
namespace {

class FingerprintTest : public testing::Test {
 protected:
  uint64_t Of(const GgufBuilder& builder) const {
    const std::string path = folder_.File("model.gguf");
    builder.Write(path);
    const auto file = GgufFile::Open(path);
    EXPECT_TRUE(file) << file.error().message;
    return file ? Fingerprint(*file) : 0;
  }
  TempFolder folder_;
};

TEST_F(FingerprintTest, IsTheSameForTheSameModel) {
  EXPECT_EQ(Of(SmallMoe(Arch::kQwen3Moe)), Of(SmallMoe(Arch::kQwen3Moe)));
  GgufBuilder annotated = SmallMoe(Arch::kQwen3Moe);
  gguf_set_val_u16(annotated.raw(), "split.count", 1);  // a copy in shards has more such keys
  EXPECT_EQ(Of(SmallMoe(Arch::kQwen3Moe)), Of(annotated));
}

TEST_F(FingerprintTest, DiffersWhenAnythingElseDoes) {
  const uint64_t plain = Of(SmallMoe(Arch::kQwen3Moe));
  EXPECT_NE(plain, 0U);
  EXPECT_NE(plain, Of(SmallMoe(Arch::kOlmoe)));
  GgufBuilder named = SmallMoe(Arch::kQwen3Moe);
  named.Set("general.name", "another");
  EXPECT_NE(plain, Of(named));
  GgufBuilder wider = SmallMoe(Arch::kQwen3Moe);
  wider.Tensor("extra", GGML_TYPE_F32, {32, 2});
  EXPECT_NE(plain, Of(wider));
  GgufBuilder other_type = SmallMoe(Arch::kQwen3Moe);
  other_type.Tensor("extra", GGML_TYPE_F16, {32, 2});
  EXPECT_NE(Of(wider), Of(other_type));
}

}  // namespace
}  // namespace moestro
