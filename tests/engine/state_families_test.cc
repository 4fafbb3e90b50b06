// SPDX-License-Identifier: MIT
// Families whose layers have a state: a text has the same bits in one prompt and in pieces of any
// size, forked, reached back, saved and beside others; and every tensor of a mixer is part of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/append.h"
#include "model/model_file.h"
#include "native/native_engine.h"
#include "tests/support/other_weights_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kFamilyVocab = 512;

std::vector<std::string> ArchsWithStates() {
  std::vector<std::string> archs = TinyArchs();
  std::erase_if(archs, [](const std::string& arch) { return !HasStates(arch); });
  return archs;
}

class StateFamilies : public testing::TestWithParam<std::string> {
 protected:
  StateFamilies()
      : path_(WriteTinyModel(
            folder_.path(),
            {.arch = GetParam(), .type = "Q4_0", .layers = 4, .vocab = kFamilyVocab})) {}

  static std::unique_ptr<NativeEngine> Open(const std::string& path, EngineOptions options = {}) {
    options.ctx = 256;
    options.threads = 2;
    auto engine = NativeEngine::Open(path, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }
  std::unique_ptr<NativeEngine> Open(const EngineOptions& options = {}) {
    return Open(path_, options);
  }
  static std::vector<float> Logits(NativeEngine& engine, Sequence& sequence,
                                   std::span<const Token> tokens) {
    const auto logits = Append(engine, sequence, tokens);
    EXPECT_TRUE(logits) << logits.error().message;
    return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }
  // After all of the text, in one prompt.
  std::vector<float> Fresh(std::span<const Token> text) {
    const auto engine = Open();
    Sequence sequence = engine->NewSequence();
    return Logits(*engine, sequence, text);
  }
  // The sequence goes on by a token as one that was evaluated from its beginning.
  void ExpectGoesOn(NativeEngine& engine, Sequence& sequence) {
    constexpr Token kNext = 7;
    std::vector<Token> text(sequence.tokens().begin(), sequence.tokens().end());
    text.push_back(kNext);
    EXPECT_EQ(Logits(engine, sequence, {&kNext, 1}), Fresh(text));
  }

  TempFolder folder_;
  std::string path_;
  const std::vector<Token> text_ = SeededTokens(150, kFamilyVocab, 3);
};

INSTANTIATE_TEST_SUITE_P(Families, StateFamilies, testing::ValuesIn(ArchsWithStates()),
                         [](const auto& arch) { return CaseName(arch.param); });

TEST_P(StateFamilies, PiecesOfAnySizeGiveTheBitsOfOnePrompt) {
  const std::vector<float> expected = Fresh(text_);
  for (const uint32_t chunk : {0U, 7U, 64U}) {
    for (const size_t piece : {size_t{1}, size_t{3}, size_t{64}}) {
      const auto engine = Open({.chunk = chunk});
      Sequence sequence = engine->NewSequence();
      std::vector<float> last;
      for (size_t at = 0; at < text_.size(); at += piece) {
        last = Logits(*engine, sequence,
                      std::span(text_).subspan(at, std::min(piece, text_.size() - at)));
      }
      EXPECT_EQ(last, expected) << "chunks of " << chunk << ", pieces of " << piece;
    }
  }
}

TEST_P(StateFamilies, ForksAndKeptPositionsGoOnWithTheSameBits) {
  const auto engine = Open({.sequences = 3});
  Sequence sequence = engine->NewSequence();
  Batch batch = RowsOf(sequence, text_, RowKind::kPrompt);
  batch.rows[40].is_kept = true;
  batch.rows[99].is_kept = true;
  ASSERT_TRUE(engine->Step(batch, {}));
  Sequence fork = sequence.Fork();
  ExpectGoesOn(*engine, sequence);
  EXPECT_EQ(fork.Reach(149), 100U);
  EXPECT_EQ(fork.GoBack(120), 100U);
  ExpectGoesOn(*engine, fork);
  EXPECT_EQ(fork.GoBack(99), 41U);
  ExpectGoesOn(*engine, fork);
  EXPECT_EQ(sequence.GoBack(130), 100U);
  ExpectGoesOn(*engine, sequence);
}

// A draft is evaluated as decode rows of one step; what was right of it is not computed again.
TEST_P(StateFamilies, ADraftsWrongTokensCostNoStep) {
  const auto engine = Open();
  Sequence sequence = engine->NewSequence();
  Logits(*engine, sequence, std::span(text_).first(60));
  Batch draft = RowsOf(sequence, std::span(text_).subspan(60, 5), RowKind::kDecode, true);
  for (BatchRow& row : std::span(draft.rows).first(4)) {
    row.is_kept = !engine->facts().divides_at_kept;
  }
  ASSERT_TRUE(engine->Step(draft, {}));
  for (const uint32_t right : {4U, 2U}) {
    EXPECT_EQ(sequence.Reach(60 + right), 60 + right);
    ASSERT_TRUE(CutBackTo(*engine, sequence, 60 + right));
    EXPECT_EQ(sequence.position(), 60 + right);
  }
  ExpectGoesOn(*engine, sequence);
}

TEST_P(StateFamilies, ASavedTextGoesOnWithTheSameBits) {
  const std::string path = folder_.File("saved");
  {
    const auto engine = Open();
    Sequence sequence = engine->NewSequence();
    Logits(*engine, sequence, std::span(text_).first(77));
    ASSERT_TRUE(engine->SaveSequence(sequence, "", path));
  }
  const auto engine = Open();
  auto saved = engine->RestoreSequence(path);
  ASSERT_TRUE(saved) << saved.error().message;
  ExpectGoesOn(*engine, saved->sequence);
}

// Gives the values of a tensor of floats the other sign; a second time, their own.
void FlipSigns(const std::string& model, const TensorInfo& tensor) {
  std::fstream file(model, std::ios::binary | std::ios::in | std::ios::out);
  std::vector<uint32_t> values(tensor.extent.length / sizeof(uint32_t));
  const auto at = static_cast<std::streamoff>(tensor.extent.offset);
  const auto bytes = static_cast<std::streamsize>(values.size() * sizeof(uint32_t));
  file.seekg(at);
  file.read(reinterpret_cast<char*>(values.data()), bytes);
  for (uint32_t& value : values) value ^= 1U << 31;
  file.seekp(at);
  file.write(reinterpret_cast<const char*>(values.data()), bytes);
  ASSERT_TRUE(file.good());
}

// The logits of a model in which the values of one tensor of floats have the other sign, or those
// of another tensor other bits. The model is afterwards as it was.
template <class LogitsOf>
std::vector<float> LogitsOfSpoilt(const std::string& model, const TensorInfo& tensor,
                                  const LogitsOf& logits_of) {
  if (tensor.type == GGML_TYPE_F32) {
    FlipSigns(model, tensor);
    std::vector<float> logits = logits_of(model);
    FlipSigns(model, tensor);
    return logits;
  }
  const std::string other = model + ".spoilt";
  WriteOtherWeights(model, other, [&](std::string_view name) { return name == tensor.name; });
  return logits_of(other);
}

// Whatever does not notice a spoilt tensor does not compute with it. Of a longer text a state that
// grows instead of fading would be infinite.
TEST_P(StateFamilies, EveryTensorOfAStateCounts) {
  const auto text = std::span(text_).first(8);
  const std::vector<float> expected = Fresh(text);
  auto model = ModelFile::Open(path_);
  ASSERT_TRUE(model) << model.error().message;
  size_t tensors = 0;
  for (const TensorInfo& tensor : model->gguf.tensors()) {
    if (!tensor.name.starts_with("blk.0.") || tensor.name.contains("ffn")) continue;
    ++tensors;
    const auto logits_of = [&](const std::string& path) {
      const auto engine = Open(path);
      Sequence sequence = engine->NewSequence();
      return Logits(*engine, sequence, text);
    };
    EXPECT_NE(LogitsOfSpoilt(path_, tensor, logits_of), expected) << tensor.name;
  }
  EXPECT_GE(tensors, 4U);
  EXPECT_EQ(Fresh(text), expected) << "the model is not as it was";
}

// The same of families whose layers are put together otherwise than others'.
class OtherLayers : public testing::TestWithParam<std::string> {};

TEST_P(OtherLayers, EveryTensorCounts) {
  const TempFolder folder;
  const std::string path = WriteTinyModel(
      folder.path(), {.arch = GetParam(), .type = "F32", .layers = 2, .vocab = kFamilyVocab});
  const auto logits_of = [](const std::string& file) {
    auto engine = NativeEngine::Open(file, EngineOptions{.threads = 2, .ctx = 160});
    EXPECT_TRUE(engine) << engine.error().message;
    std::vector<float> logits;
    if (!engine) return logits;
    Sequence sequence = (*engine)->NewSequence();
    // A pool of deepseek4 has 128 positions.
    const size_t n = GetParam() == "deepseek4" ? 140 : 40;
    const std::vector<Token> text = SeededTokens(n, kFamilyVocab, 5);
    constexpr size_t kPiece = 4;  // choices of experts may stay the same
    for (size_t at = 0; at < text.size(); at += kPiece) {
      const auto last = Append(**engine, sequence, std::span(text).subspan(at, kPiece));
      EXPECT_TRUE(last) << last.error().message;
      if (last) logits.append_range(*last);
    }
    return logits;
  };
  const std::vector<float> expected = logits_of(path);
  const auto model = ModelFile::Open(path);
  ASSERT_TRUE(model) << model.error().message;
  for (const TensorInfo& tensor : model->gguf.tensors()) {
    // Other tests see what all families have.
    if (tensor.ne[1] > 1 && !tensor.name.contains("latent") && !tensor.name.contains("attn_") &&
        !tensor.name.contains("indexer") && !tensor.name.contains("hc_") &&
        !tensor.name.contains("ple_") && !tensor.name.starts_with("per_layer")) {
      continue;
    }
    EXPECT_NE(LogitsOfSpoilt(path, tensor, logits_of), expected) << tensor.name;
  }
  EXPECT_EQ(logits_of(path), expected) << "the model is not as it was";
}

INSTANTIATE_TEST_SUITE_P(All, OtherLayers,
                         testing::Values("gemma4", "nemotron_h_moe", "deepseek2", "glm-dsa",
                                         "bailingmoe3", "glm5-next", "qwen4exp", "minimax-m3",
                                         "deepseek4"),
                         [](const auto& arch) { return CaseName(arch.param); });

}  // namespace
}  // namespace moestro
