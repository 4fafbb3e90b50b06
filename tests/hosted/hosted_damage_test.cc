// SPDX-License-Identifier: MIT
// Model files of libllama's architectures that are cut short or have other weights.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/append.h"
#include "load/open_engine.h"
#include "model/gguf_file.h"
#include "tests/support/damage_testing.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

class DamagedZoo : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    path_ = WriteZooModel(folder_.path(), GetParam());
    changed_ = folder_.File("changed.gguf");
  }
  static Result<std::unique_ptr<Engine>> Open(const std::string& path) {
    EngineOptions options;
    options.engine = "hosted";
    options.cache = CacheSize{.percent = 60.0};
    options.threads = 1;
    options.ctx = 64;
    return OpenEngine(path, options);
  }
  // A copy of the model to be damaged.
  void Renew() const {
    std::filesystem::copy_file(path_, changed_, std::filesystem::copy_options::overwrite_existing);
  }

  const std::vector<Token> prompt_ = {3, 40, 77, 114, 151, 188};
  const std::vector<Token> more_ = {5, 6, 7};
  TempFolder folder_;
  std::string path_;
  std::string changed_;
};

TEST_P(DamagedZoo, AFileThatEndsEarlyIsRefused) {
  const uint64_t size = std::filesystem::file_size(path_);
  for (const uint64_t length : {size - 1, size / 2, size / 16, uint64_t{1000}, uint64_t{24}}) {
    Renew();
    std::filesystem::resize_file(changed_, length);
    const auto engine = Open(changed_);
    ASSERT_FALSE(engine) << length;
    EXPECT_EQ(engine.error().code, Errc::kInvalidFile) << engine.error().message;
  }
}

// A tensor whose change no saved text notices is one that changes no logits. Whole numbers become
// -1, which is no expert's, and all else NaN.
TEST_P(DamagedZoo, EachTensorsWeightsBelongToASavedText) {
  const std::string saved = folder_.File("text.seq");
  std::vector<float> expected;
  {
    const auto engine = Open(path_);
    ASSERT_TRUE(engine) << engine.error().message;
    Sequence sequence = (*engine)->NewSequence();
    ASSERT_TRUE(Append(**engine, sequence, prompt_));
    ASSERT_TRUE((*engine)->SaveSequence(sequence, "", saved));
    const auto rows = AppendAll(**engine, sequence, more_);
    ASSERT_TRUE(rows);
    expected = *rows;
  }
  const auto gguf = GgufFile::Open(path_);
  ASSERT_TRUE(gguf);
  for (const TensorInfo& tensor : gguf->tensors()) {
    SCOPED_TRACE(tensor.name);
    Renew();
    FillWithNan(changed_, tensor.name);
    const auto engine = Open(changed_);
    if (!engine) {
      EXPECT_EQ(engine.error().code, Errc::kInvalidFile) << engine.error().message;
      continue;
    }
    const auto restored = (*engine)->RestoreSequence(saved);
    if (!restored) {
      EXPECT_TRUE(restored.error().message.contains("other weights")) << restored.error().message;
    }
    Sequence sequence = (*engine)->NewSequence();
    const auto begun = AppendAll(**engine, sequence, prompt_);
    if (!begun) {
      EXPECT_EQ(begun.error().code, Errc::kInvalidFile) << begun.error().message;
      EXPECT_EQ(sequence.position(), 0U);
      continue;
    }
    const auto rows = AppendAll(**engine, sequence, more_);
    ASSERT_TRUE(rows) << rows.error().message;
    if (restored) {
      EXPECT_EQ(*rows, expected);
    }
  }
}

TEST(DamagedTables, AnExpertThatIsNotThereIsAnError) {
  const TempFolder folder;
  const std::string path = WriteZooModel(folder.path(), "deepseek4");
  FillWeights(path, "blk.0.ffn_gate_tid2eid.weight", '\x11');
  EngineOptions options;
  options.engine = "hosted";
  options.threads = 1;
  options.ctx = 64;
  const auto engine = OpenEngine(path, options);
  ASSERT_TRUE(engine) << engine.error().message;
  Sequence sequence = (*engine)->NewSequence();
  for (int i = 0; i < 2; ++i) {
    const auto row = Append(**engine, sequence, std::vector<Token>{3, 40});
    ASSERT_FALSE(row);
    EXPECT_EQ(row.error().code, Errc::kInvalidFile);
    EXPECT_TRUE(row.error().message.contains("286331153 was chosen of 8")) << row.error().message;
    EXPECT_EQ(sequence.position(), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, DamagedZoo,
                         testing::Values("bailingmoe3", "deepseek32", "deepseek4", "gemma4",
                                         "glm-dsa", "glm5-next", "hy_v4", "kimi-k3", "step35"),
                         [](const auto& arch) { return ZooCaseName(arch.param, 0); });

}  // namespace
}  // namespace moestro
