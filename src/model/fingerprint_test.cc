// SPDX-License-Identifier: MIT
#include "model/fingerprint.h"

#include <gtest/gtest.h>

#include <string>

#include "model/gguf_testing.h"
#include "tests/support/temp_folder_testing.h"

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
  EXPECT_EQ(Of(SmallMoe("qwen3moe")), Of(SmallMoe("qwen3moe")));
  GgufBuilder annotated = SmallMoe("qwen3moe");
  gguf_set_val_u16(annotated.raw(), "split.count", 1);  // a copy in shards has more such keys
  EXPECT_EQ(Of(SmallMoe("qwen3moe")), Of(annotated));
}

TEST_F(FingerprintTest, DiffersWhenAnythingElseDoes) {
  const uint64_t plain = Of(SmallMoe("qwen3moe"));
  EXPECT_NE(plain, 0U);
  EXPECT_NE(plain, Of(SmallMoe("olmoe")));
  GgufBuilder named = SmallMoe("qwen3moe");
  named.Set("general.name", "another");
  EXPECT_NE(plain, Of(named));
  GgufBuilder wider = SmallMoe("qwen3moe");
  wider.Tensor("extra", GGML_TYPE_F32, {32, 2});
  EXPECT_NE(plain, Of(wider));
  GgufBuilder other_type = SmallMoe("qwen3moe");
  other_type.Tensor("extra", GGML_TYPE_F16, {32, 2});
  EXPECT_NE(Of(wider), Of(other_type));
}

}  // namespace
}  // namespace moestro
