// SPDX-License-Identifier: MIT
// A text of the hosted engine that comes back from its file goes on, and back to earlier positions,
// with the bits of the text itself: layers with states from kept positions, layers with windows
// from any. A file with hostile lengths is an error.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/binary_file.h"
#include "base/hash.h"
#include "engine/append.h"
#include "load/open_engine.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/product_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kFilesContext = 768;
constexpr uint32_t kFilesChunk = 48;
constexpr size_t kFilesPrompt = 264;
constexpr uint32_t kKeptPosition = 4 * kFilesChunk;  // rows before have the same chunks when alone

// libllama does not name the beginnings of windows that are chunks.
bool GoesOnFromItsEndAlone(const std::string& arch) { return arch == "llama4"; }

std::vector<Token> FilesTokens(size_t n, uint32_t seed) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < n; ++i) tokens.push_back(static_cast<Token>((i * 53 + seed * 17) % 256));
  return tokens;
}

class HostedFiles : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    model_ = WriteZooModel(folder_.path(), GetParam(), {.context = kFilesContext});
  }
  std::unique_ptr<Engine> Open() const {
    EngineOptions options;
    options.engine = "hosted";
    options.cache = CacheSize{.percent = 100.0};
    options.threads = 1;
    options.ctx = kFilesContext;
    options.chunk = kFilesChunk;
    auto engine = OpenEngine(model_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }
  // A text that can go back to the end of each chunk up to kKeptPosition.
  std::string Save() const {
    std::string path = folder_.File("text.seq");
    const auto engine = Open();
    Sequence sequence = engine->NewSequence();
    for (uint32_t at = 0; at < kKeptPosition; at += kFilesChunk) {
      EXPECT_TRUE(Append(*engine, sequence, std::span(prompt_).subspan(at, kFilesChunk)));
      sequence.Keep();
    }
    EXPECT_TRUE(Append(*engine, sequence, std::span(prompt_).subspan(kKeptPosition)));
    const Status saved = engine->SaveSequence(sequence, "notes", path);
    EXPECT_TRUE(saved) << saved.error().message;
    return path;
  }
  // Logits of `more` behind the prompt's first `position` tokens, computed anew.
  std::vector<float> Expected(uint32_t position, std::span<const Token> more) const {
    const auto engine = Open();
    Sequence sequence = engine->NewSequence();
    EXPECT_TRUE(Append(*engine, sequence, std::span(prompt_).first(position)));
    const auto rows = AppendAll(*engine, sequence, more);
    EXPECT_TRUE(rows) << rows.error().message;
    return rows ? *rows : std::vector<float>();
  }

  const std::vector<Token> prompt_ = FilesTokens(kFilesPrompt, 1);
  const std::vector<Token> more_ = FilesTokens(30, 5);
  TempFolder folder_;
  std::string model_;
};

// One text at a time: others beside it may change the hosted engine's bits (docs/bits.md).
TEST_P(HostedFiles, ARestoredTextGoesOnWithTheSameBits) {
  const std::string path = Save();
  const auto engine = Open();
  auto saved = engine->RestoreSequence(path);
  ASSERT_TRUE(saved) << saved.error().message;
  EXPECT_EQ(saved->notes, "notes");
  ASSERT_EQ(saved->sequence.position(), kFilesPrompt);
  const auto rows = AppendAll(*engine, saved->sequence, more_);
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(*rows, Expected(kFilesPrompt, more_));
}

TEST_P(HostedFiles, ARestoredTextGoesBackWithTheSameBits) {
  const std::string path = Save();
  for (const uint32_t position : {kKeptPosition, 2 * kFilesChunk}) {
    SCOPED_TRACE(position);
    const auto engine = Open();
    auto saved = engine->RestoreSequence(path);
    ASSERT_TRUE(saved) << saved.error().message;
    if (!GoesOnFromItsEndAlone(GetParam())) {
      EXPECT_EQ(saved->sequence.Reach(position + 1),
                ZooHasStates(GetParam()) ? position : position + 1);
    }
    ASSERT_TRUE(CutBackTo(*engine, saved->sequence, position));
    const auto rows = AppendAll(*engine, saved->sequence, more_);
    ASSERT_TRUE(rows) << rows.error().message;
    EXPECT_EQ(*rows, Expected(position, more_));
  }
}

TEST_P(HostedFiles, ANewTextInARestoredOnesPlaceIsComputedAsAlone) {
  const std::string path = Save();
  const auto engine = Open();
  for (int again = 0; again < 2; ++again) {
    auto saved = engine->RestoreSequence(path);
    ASSERT_TRUE(saved) << saved.error().message;
    const Sequence fork = saved->sequence.Fork();
  }
  Sequence sequence = engine->NewSequence();
  ASSERT_TRUE(Append(*engine, sequence, std::span(prompt_).first(kKeptPosition)));
  const auto rows = AppendAll(*engine, sequence, more_);
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(*rows, Expected(kKeptPosition, more_));
}

// The first text has got its place for the next token when the second one finds no room.
TEST_P(HostedFiles, AStepThatFindsNoRoomLeavesNothingToLaterTexts) {
  const auto engine = Open();
  {
    Sequence sequence = engine->NewSequence();
    ASSERT_TRUE(Append(*engine, sequence, std::span(prompt_).first(kFilesChunk)));
    Sequence large = engine->NewSequence();
    Batch batch = RowsOf(sequence, std::span(more_).first(1), RowKind::kDecode);
    batch.rows.append_range(
        RowsOf(large, std::vector<Token>(kFilesContext, 7), RowKind::kPrompt).rows);
    const Status refused = engine->Step(batch);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
  }
  Sequence sequence = engine->NewSequence();
  ASSERT_TRUE(Append(*engine, sequence, std::span(prompt_).first(kKeptPosition)));
  const auto rows = AppendAll(*engine, sequence, more_);
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(*rows, Expected(kKeptPosition, more_));
}

TEST_P(HostedFiles, AStepThatFindsNoRoomLeavesNothingToRestoredTexts) {
  const std::string path = Save();
  const auto engine = Open();
  {
    Sequence sequence = engine->NewSequence();
    ASSERT_TRUE(Append(*engine, sequence, std::span(more_)));
    Sequence large = engine->NewSequence();
    Batch batch = RowsOf(sequence, std::span(more_).first(1), RowKind::kDecode);
    batch.rows.append_range(
        RowsOf(large, std::vector<Token>(kFilesContext, 7), RowKind::kPrompt).rows);
    ASSERT_FALSE(engine->Step(batch));
  }
  auto saved = engine->RestoreSequence(path);
  ASSERT_TRUE(saved) << saved.error().message;
  const auto rows = AppendAll(*engine, saved->sequence, more_);
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(*rows, Expected(kFilesPrompt, more_));
}

// Saved, restored and saved again: the second file holds what the first one does.
TEST_P(HostedFiles, ARestoredTextIsSavedWithItsPositions) {
  const std::string path = Save();
  const std::string second = folder_.File("second.seq");
  {
    const auto engine = Open();
    auto saved = engine->RestoreSequence(path);
    ASSERT_TRUE(saved) << saved.error().message;
    ASSERT_TRUE(engine->SaveSequence(saved->sequence, "notes", second));
    const auto first = engine->PeekSequence(path);
    const auto copied = engine->PeekSequence(second);
    ASSERT_TRUE(first);
    ASSERT_TRUE(copied);
    EXPECT_EQ(copied->checkpoints, first->checkpoints);
    if (ZooHasStates(GetParam())) {
      EXPECT_EQ(first->checkpoints, (std::vector<uint32_t>{48, 96, 144, kKeptPosition}));
    }
  }
  const auto engine = Open();
  auto saved = engine->RestoreSequence(second);
  ASSERT_TRUE(saved) << saved.error().message;
  ASSERT_TRUE(CutBackTo(*engine, saved->sequence, kKeptPosition));
  const auto rows = AppendAll(*engine, saved->sequence, more_);
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(*rows, Expected(kKeptPosition, more_));
}

// The cover has each kind of memory.
std::vector<std::string> FilesOfPart(uint32_t part) {
  return CellsOfPart(part, ZooArchs(),
                     [](const std::string& arch) { return Keys{ZooMemory(arch)}; });
}

MOESTRO_INSTANTIATE_PARTS(HostedFiles, FilesOfPart,
                          [](const auto& arch) { return ZooCaseName(arch.param, 0); });

class HostileHostedFile : public HostedFiles {
 protected:
  void SetUp() override {
    HostedFiles::SetUp();
    path_ = Save();
    std::ifstream file(path_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    Decoder lengths(std::string_view(bytes_).substr(28, 12));
    const auto n_tokens = lengths.Take<uint32_t>();
    const auto notes = lengths.Take<uint32_t>();
    const auto choices = lengths.Take<uint32_t>();
    list_ = 48 + choices + notes + n_tokens * sizeof(Token);
    engine_ = Open();
  }
  // A file with other bytes at `at` is refused as damaged, with its name.
  template <class T>
  void ExpectRefused(size_t at, T value) const {
    std::string changed = bytes_;
    std::string number;
    AppendNumber(number, value);
    changed.replace(at, number.size(), number);
    ExpectRefused(changed);
  }
  void ExpectRefused(const std::string& bytes) const {
    const std::string path = folder_.File("changed.seq");
    std::ofstream(path, std::ios::binary) << bytes;
    for (const bool peeks : {true, false}) {
      const auto peeked = engine_->PeekSequence(path);
      const auto restored = engine_->RestoreSequence(path);
      const Error error =
          peeks ? (peeked ? Error{} : peeked.error()) : (restored ? Error{} : restored.error());
      EXPECT_EQ(error.code, Errc::kInvalidFile) << error.message;
      EXPECT_TRUE(error.message.contains(path)) << error.message;
    }
  }

  std::string path_;
  std::string bytes_;
  size_t list_ = 0;  // begin of the list of parts
  std::unique_ptr<Engine> engine_;
};

TEST_P(HostileHostedFile, LengthsThatDoNotFitAreRefused) {
  constexpr size_t kWholeBytes = 40;
  const size_t first = list_ + sizeof(uint32_t);
  ASSERT_GT(Decoder(std::string_view(bytes_).substr(list_, 4)).Take<uint32_t>(), 0U);
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1} << 40, kMost, kMost - 7}) {
    ExpectRefused(kWholeBytes, bytes);
    ExpectRefused(first + sizeof(uint32_t), bytes);
  }
  for (const uint32_t parts : {0U, 1U, 1000U, 0xFFFFFFFFU}) ExpectRefused(list_, parts);
  for (const uint32_t position : {0U, uint32_t{kFilesPrompt}, 0xFFFFFFFFU}) {
    ExpectRefused(first, position);
  }
  for (const size_t length : {list_, list_ + 3, first + 5, bytes_.size() - 1}) {
    ExpectRefused(bytes_.substr(0, length));
  }
  EXPECT_TRUE(engine_->RestoreSequence(path_));
}

// The first version has no parts: the text goes on from its end.
TEST_P(HostileHostedFile, TheFirstVersionIsRead) {
  const auto whole = Decoder(std::string_view(bytes_).substr(40, 8)).Take<uint64_t>();
  const auto parts = Decoder(std::string_view(bytes_).substr(list_, 4)).Take<uint32_t>();
  std::string old = bytes_.substr(0, list_) + bytes_.substr(list_ + 4 + size_t{12} * parts, whole);
  std::string version;
  AppendNumber(version, uint32_t{1});
  old.replace(8, version.size(), version);
  Fnv1a sum;
  sum.Add(old);
  AppendNumber(old, sum.value());
  const std::string path = folder_.File("old.seq");
  std::ofstream(path, std::ios::binary) << old;
  auto saved = engine_->RestoreSequence(path);
  ASSERT_TRUE(saved) << saved.error().message;
  const auto rows = AppendAll(*engine_, saved->sequence, more_);
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(*rows, Expected(kFilesPrompt, more_));
}

// A state with a flipped bit never comes to libllama.
TEST_P(HostileHostedFile, ADamagedPartIsRefused) {
  std::string changed = bytes_;
  changed[bytes_.size() - kChecksumBytes - 1] ^= 0x10;
  const std::string path = folder_.File("changed.seq");
  std::ofstream(path, std::ios::binary) << changed;
  const auto restored = engine_->RestoreSequence(path);
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().code, Errc::kInvalidFile) << restored.error().message;
}

INSTANTIATE_TEST_SUITE_P(Kinds, HostileHostedFile, testing::Values("qwen35moe", "cohere2moe"),
                         [](const auto& arch) { return ZooCaseName(arch.param, 0); });

}  // namespace
}  // namespace moestro
