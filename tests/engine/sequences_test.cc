// SPDX-License-Identifier: MIT
// Many sequences in one engine: each gets the tokens that it gets alone, whatever shares its steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/binary_file.h"
#include "base/hash.h"
#include "base/text.h"
#include "core/model_spec.h"
#include "decide/slots/policy.h"
#include "engine/append.h"
#include "native/native_engine.h"
#include "tests/support/product_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kContext = 96;
constexpr size_t kSteps = 10;
constexpr uint32_t kMost = 16;  // sequences

struct Setting {
  std::string reader = "auto";
  std::string policy = "next-use";
  std::string predictor = "next-router";
  bool repack = false;
  double percent = 25.0;
  KvType kv_type = KvType::kF16;
};

std::unique_ptr<NativeEngine> Open(const std::string& path, const Setting& setting) {
  EngineOptions options;
  options.ctx = kContext;
  options.sequences = kMost + 1;
  options.threads = 2;
  options.reader = setting.reader;
  options.policy = {.name = setting.policy};
  options.predictor = setting.predictor;
  options.repack = setting.repack;
  options.cache = CacheSize{.percent = setting.percent};
  options.kv_type = setting.kv_type;
  auto engine = NativeEngine::Open(path, options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return engine ? *std::move(engine) : nullptr;
}

// Prompts differ in length, so that no two sequences are at the same position.
std::vector<Token> PromptOf(uint32_t i, uint32_t n_vocab) {
  return SeededTokens(4 + i, n_vocab, 100 + i);
}

// What one sequence said: greedy tokens and the logits they were chosen from.
struct Said {
  std::vector<Token> tokens;
  std::vector<float> logits;  // [step][n_vocab]
};

void Note(Said& said, std::span<const float> logits) {
  said.tokens.push_back(Greedy(logits));
  said.logits.insert(said.logits.end(), logits.begin(), logits.end());
}

Said Alone(NativeEngine& engine, uint32_t i) {
  Said said;
  Sequence sequence = engine.NewSequence();
  const auto prompt = Append(engine, sequence, PromptOf(i, engine.spec().n_vocab));
  EXPECT_TRUE(prompt.has_value()) << prompt.error().message;
  Note(said, *prompt);
  for (size_t step = 0; step < kSteps; ++step) {
    const Token last = said.tokens.back();
    const auto logits = Append(engine, sequence, {&last, 1});
    EXPECT_TRUE(logits.has_value()) << logits.error().message;
    Note(said, *logits);
  }
  return said;
}

// All sequences a step at a time, one row each.
std::vector<Said> Together(NativeEngine& engine, uint32_t n) {
  std::vector<Said> said(n);
  std::vector<Sequence> sequences;
  for (uint32_t i = 0; i < n; ++i) {
    sequences.push_back(engine.NewSequence());
    const auto prompt = Append(engine, sequences[i], PromptOf(i, engine.spec().n_vocab));
    EXPECT_TRUE(prompt.has_value()) << prompt.error().message;
    Note(said[i], *prompt);
  }
  for (size_t step = 0; step < kSteps; ++step) {
    Batch batch;
    for (uint32_t i = 0; i < n; ++i) {
      batch.rows.push_back({.sequence = sequences[i].id(),
                            .position = sequences[i].position(),
                            .token = said[i].tokens.back(),
                            .wants_logits = true});
    }
    const Status stepped = engine.Step(
        batch, [&](size_t row, std::span<const float> logits) { Note(said[row], logits); });
    EXPECT_TRUE(stepped.has_value()) << stepped.error().message;
  }
  return said;
}

// Largest difference as a share of the largest logit.
double Difference(const Said& a, const Said& b) {
  double size = 0.0;
  double difference = 0.0;
  for (size_t i = 0; i < a.logits.size(); ++i) {
    size = std::max(size, std::abs(static_cast<double>(a.logits[i])));
    difference = std::max(difference, std::abs(static_cast<double>(a.logits[i]) - b.logits[i]));
  }
  return difference / size;
}

// Settings of one architecture.
struct Shared {
  std::string arch;
  std::vector<Setting> settings;
};
void PrintTo(const Shared& shared, std::ostream* out) {
  *out << shared.settings.size() << " settings";
}

// A product of architectures and settings. The cover has each architecture, and each reader and
// policy with each kind of mixers.
std::vector<Shared> SharedOfPart(uint32_t part) {
  struct Cell {
    std::string arch;
    Setting setting;
  };
  std::vector<Setting> settings = {{.reader = "uring"}, {.reader = "pread"}};
  for (const PolicyInfo& policy : KnownPolicies()) {
    settings.push_back({.policy = std::string(policy.name)});
  }
  std::vector<Cell> cells;
  for (const std::string& arch : TinyArchs()) {
    for (const Setting& setting : settings) cells.push_back({arch, setting});
  }
  const auto keys_of = [](const Cell& cell) {
    return Joined({cell.arch},
                  {PairsOf({MixersOf(cell.arch)}, {cell.setting.reader, cell.setting.policy})});
  };
  std::vector<Shared> all;
  for (const Cell& cell : CellsOfPart(part, cells, keys_of)) {
    if (all.empty() || all.back().arch != cell.arch) all.push_back({cell.arch, {}});
    all.back().settings.push_back(cell.setting);
  }
  return all;
}

class Sequences : public ::testing::TestWithParam<Shared> {};

// A row's result is its own: to the bit.
TEST_P(Sequences, StepsTogetherGiveTheBitsOfStepsAlone) {
  const auto& [arch, settings] = GetParam();
  const TempFolder folder;
  const std::string path =
      WriteTinyModel(folder.path(), {.arch = arch, .type = "Q8_0", .layers = 3, .experts = 16});
  std::vector<Said> alone;
  const auto reference = Open(path, {.percent = 100.0});
  ASSERT_NE(reference, nullptr);
  for (uint32_t i = 0; i < kMost; ++i) alone.push_back(Alone(*reference, i));
  for (const Setting& setting : settings) {
    const auto engine = Open(path, setting);
    ASSERT_NE(engine, nullptr);
    for (const uint32_t n : {1U, 2U, 5U, kMost}) {
      const std::vector<Said> together = Together(*engine, n);
      for (uint32_t i = 0; i < n; ++i) {
        EXPECT_EQ(together[i].tokens, alone[i].tokens);
        EXPECT_EQ(Difference(together[i], alone[i]), 0.0)
            << setting.reader << " " << setting.policy << ": sequence " << i << " of " << n;
      }
    }
    EXPECT_GT(engine->stats().decode.evictions, 0U);
  }
}

MOESTRO_INSTANTIATE_PARTS(Sequences, SharedOfPart,
                          [](const auto& shared) { return CaseName(shared.param.arch); });

// The logits of a prompt of 70 tokens that goes in by `rows` at a time.
std::vector<float> InPieces(NativeEngine& engine, size_t rows) {
  const std::vector<Token> prompt = SeededTokens(70, engine.spec().n_vocab, 3);
  Sequence sequence = engine.NewSequence();
  std::vector<float> last;
  for (size_t at = 0; at < prompt.size(); at += rows) {
    const size_t n = std::min(rows, prompt.size() - at);
    const auto logits = Append(engine, sequence, std::span(prompt).subspan(at, n));
    EXPECT_TRUE(logits.has_value()) << logits.error().message;
    last.assign(logits->begin(), logits->end());
  }
  return last;
}

// Layouts of rows: a product of types and of whether dense weights are repacked. The cover has each
// of both.
struct Layout {
  const char* type;
  bool is_tied = false;
  bool is_repacked = false;
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.type; }

std::vector<Layout> LayoutsOfPart(uint32_t part) {
  std::vector<Layout> cells;
  for (const bool is_repacked : {false, true}) {
    for (const char* type :
         {"F32", "F16", "BF16", "Q8_0", "Q4_0", "IQ4_NL", "MXFP4", "IQ4_XS", "Q4_K_M"}) {
      cells.push_back({type, false, is_repacked});
    }
    for (const char* type : {"IQ4_XS", "Q4_K_M"}) cells.push_back({type, true, is_repacked});
  }
  return CellsOfPart(part, cells, [](const Layout& one) {
    return Keys{Format("{} {}", one.type, one.is_tied), Format("repacked {}", one.is_repacked)};
  });
}

class BatchInvariance : public ::testing::TestWithParam<Layout> {};

// A row's product does not depend on its neighbours, in any layout: neither where kernels of ours
// multiply nor where ggml's dot products do. ggml itself would multiply many rows of K-quants and
// of IQ4_XS with other activations (docs/decisions/0007-rows-of-many-sequences.md). A tied output
// keeps the file's layout.
TEST_P(BatchInvariance, RowsAreAsAlone) {
  const auto& [type, is_tied, is_repacked] = GetParam();
  const TempFolder folder;
  const std::string path = WriteTinyModel(
      folder.path(),
      {.arch = "qwen3moe", .type = type, .layers = 3, .ff = 256, .is_tied = is_tied});
  const auto engine = Open(path, {.repack = is_repacked, .percent = 50.0});
  ASSERT_NE(engine, nullptr);
  const std::vector<Said> together = Together(*engine, kMost);
  for (uint32_t i = 0; i < kMost; ++i) {
    const Said alone = Alone(*engine, i);
    EXPECT_EQ(together[i].tokens, alone.tokens) << "sequence " << i;
    EXPECT_EQ(Difference(together[i], alone), 0.0) << "sequence " << i;
  }
  const std::vector<float> whole = InPieces(*engine, 70);
  for (const size_t rows : {1U, 33U}) EXPECT_EQ(InPieces(*engine, rows), whole) << rows;
}

MOESTRO_INSTANTIATE_PARTS(BatchInvariance, LayoutsOfPart, [](const auto& one) {
  return std::string(one.param.type) + (one.param.is_tied ? "_tied" : "") +
         (one.param.is_repacked ? "_repacked" : "");
});

class OneModel : public ::testing::TestWithParam<KvType> {
 protected:
  void SetUp() override {
    path_ = WriteTinyModel(folder_.path(), {.arch = "qwen3moe", .type = "Q8_0", .layers = 3});
    engine_ = Open(path_, {.percent = 50.0, .kv_type = GetParam()});
    ASSERT_NE(engine_, nullptr);
  }
  std::vector<float> Next(Sequence& sequence, std::vector<Token> tokens) {
    const auto logits = Append(*engine_, sequence, tokens);
    EXPECT_TRUE(logits.has_value()) << logits.error().message;
    return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }

  TempFolder folder_;
  std::string path_;
  std::unique_ptr<NativeEngine> engine_;
};

INSTANTIATE_TEST_SUITE_P(KvTypes, OneModel,
                         ::testing::Values(KvType::kF16, KvType::kQ8, KvType::kF32),
                         [](const auto& type) { return std::string(NameOf(type.param)); });

TEST_P(OneModel, ForksGoOnAsIfEachWereAlone) {
  const std::vector<Token> start = SeededTokens(40, 512, 1);
  Sequence first = engine_->NewSequence();
  Next(first, start);
  std::vector<Sequence> forks;
  for (int i = 0; i < 3; ++i) forks.push_back(first.Fork());
  const std::vector<float> of_first = Next(first, {7});
  for (Token t = 0; t < 3; ++t) {
    Sequence alone = engine_->NewSequence();
    Next(alone, start);
    const std::vector<float> expected = Next(alone, {t + 20});
    EXPECT_EQ(Next(forks[static_cast<size_t>(t)], {t + 20}), expected);
    EXPECT_EQ(Next(forks[static_cast<size_t>(t)], {t + 40}), Next(alone, {t + 40}));
  }
  // The one they came from has not noticed.
  first.CutBack(40);
  EXPECT_EQ(Next(first, {7}), of_first);
}

TEST_P(OneModel, RowsToBeVerifiedGiveTheLogitsOfSingleSteps) {
  const std::vector<Token> tokens = SeededTokens(5, 512, 2);
  Sequence stepped = engine_->NewSequence();
  Sequence verified = engine_->NewSequence();
  Next(stepped, SeededTokens(20, 512, 3));
  Next(verified, SeededTokens(20, 512, 3));
  std::vector<std::vector<float>> expected;
  for (const Token t : tokens) expected.push_back(Next(stepped, {t}));
  const uint64_t decoded = engine_->stats().decode.tokens;
  size_t rows = 0;
  const Status stepped_together =
      engine_->Step(RowsOf(verified, tokens, RowKind::kDecode, true),
                    [&](size_t row, std::span<const float> logits) {
                      EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()), expected[row]);
                      ++rows;
                    });
  ASSERT_TRUE(stepped_together) << stepped_together.error().message;
  EXPECT_EQ(rows, tokens.size());
  EXPECT_EQ(engine_->stats().decode.tokens, decoded + tokens.size());  // decode, not a prompt
  verified.CutBack(22);
  EXPECT_EQ(Next(verified, {tokens[2]}), expected[2]);
}

TEST_P(OneModel, AMixedStepServesAPromptAndADecode) {
  Sequence old = engine_->NewSequence();
  Next(old, SeededTokens(10, 512, 4));
  Sequence twin = old.Fork();
  const std::vector<float> expected_old = Next(twin, {5});
  Sequence other = engine_->NewSequence();
  const std::vector<Token> prompt = SeededTokens(6, 512, 5);
  const std::vector<float> expected_new = Next(other, prompt);
  Sequence fresh = engine_->NewSequence();
  Batch batch = RowsOf(fresh, prompt, RowKind::kPrompt);
  const Token five = 5;
  batch.rows.push_back(RowsOf(old, {&five, 1}, RowKind::kDecode).rows.front());
  std::vector<std::vector<float>> got;
  ASSERT_TRUE(engine_->Step(batch, [&](size_t, std::span<const float> logits) {
    got.emplace_back(logits.begin(), logits.end());
  }));
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0], expected_new);
  EXPECT_EQ(got[1], expected_old);
}

TEST_P(OneModel, RefusesRowsThatDoNotFollowAndChangesNothing) {
  Sequence sequence = engine_->NewSequence();
  Next(sequence, {1, 2, 3});
  Batch batch = RowsOf(sequence, SeededTokens(2, 512, 1), RowKind::kDecode);
  batch.rows[1].position = 7;
  const Status gap = engine_->Step(batch);
  ASSERT_FALSE(gap);
  EXPECT_EQ(gap.error().code, Errc::kInvalidRequest);
  batch.rows[1] = batch.rows[0];
  batch.rows[1].sequence = SequenceId{99};
  EXPECT_FALSE(engine_->Step(batch));
  EXPECT_FALSE(engine_->Step({}));
  EXPECT_EQ(sequence.position(), 3U);
}

TEST_P(OneModel, TooManySequencesAreRefusedAndTheOthersGoOn) {
  std::vector<Sequence> full;
  for (uint32_t i = 0; i < kMost + 1; ++i) {
    full.push_back(engine_->NewSequence());
    Next(full.back(), SeededTokens(kContext - 1, 512, i));
  }
  Sequence more = engine_->NewSequence();
  const auto refused = Append(*engine_, more, SeededTokens(3, 512, 1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
  EXPECT_EQ(more.position(), 0U);
  Next(full.front(), {9});
  full.pop_back();
  Next(more, SeededTokens(3, 512, 1));
}

TEST_P(OneModel, ASavedSequenceGoesOnWithTheSameBitsInAnotherEngine) {
  const std::string file = (folder_.path() / "saved.moeseq").string();
  Sequence sequence = engine_->NewSequence();
  Next(sequence, SeededTokens(45, 512, 6));
  Next(sequence, {3});
  ASSERT_TRUE(engine_->SaveSequence(sequence, "a note", file));
  const std::vector<float> expected = Next(sequence, {8});

  const auto other = Open(path_, {.reader = "pread", .percent = 100.0, .kv_type = GetParam()});
  auto restored = other->RestoreSequence(file);
  ASSERT_TRUE(restored.has_value()) << restored.error().message;
  EXPECT_EQ(restored->notes, "a note");
  EXPECT_EQ(restored->sequence.position(), 46U);
  const Token eight = 8;
  const auto logits = Append(*other, restored->sequence, {&eight, 1});
  ASSERT_TRUE(logits.has_value());
  EXPECT_EQ(std::vector<float>(logits->begin(), logits->end()), expected);
}

// As version 2 had it: the widths of all layers' keys and values in place of the two sizes. Version
// 3 lacked what is said of layers with a window, version 4 the number of checkpoints.
TEST_P(OneModel, ASavedSequenceOfAnEarlierVersionIsRead) {
  const std::string file = (folder_.path() / "saved.moeseq").string();
  Sequence sequence = engine_->NewSequence();
  Next(sequence, SeededTokens(45, 512, 6));
  ASSERT_TRUE(engine_->SaveSequence(sequence, "a note", file));
  const std::vector<float> expected = Next(sequence, {8});
  std::ifstream in(file, std::ios::binary);
  const std::string newer((std::istreambuf_iterator<char>(in)), {});
  const auto restore = [&](uint32_t version, const std::string& sizes) {
    std::string older = newer.substr(0, 8);
    AppendNumber(older, version);
    older += newer.substr(12, 24);  // positions in a block, model, weights, layers
    older += sizes;
    older += newer.substr(52, version < 4 ? 16 : 28);  // tokens, notes, type, choices; windows
    older += newer.substr(84, newer.size() - 84 - kChecksumBytes);
    Fnv1a sum;
    sum.Add(older);
    AppendNumber(older, sum.value());
    std::ofstream(file, std::ios::binary | std::ios::trunc) << older;
    return engine_->RestoreSequence(file);
  };
  const auto as_version_2 = [&](uint32_t keys, uint32_t values) {
    std::string sizes;
    AppendNumber(sizes, keys);
    AppendNumber(sizes, values);
    return restore(2, sizes);
  };
  const AttentionSpec& attention = *engine_->spec().layers.front().attention();
  auto restored = as_version_2(attention.n_embd_k(), attention.n_embd_v());
  ASSERT_TRUE(restored.has_value()) << restored.error().message;
  EXPECT_EQ(restored->notes, "a note");
  EXPECT_EQ(Next(restored->sequence, {8}), expected);
  const auto refused = as_version_2(attention.n_embd_k(), attention.n_embd_v() + 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::kInvalidFile);
  for (const uint32_t version : {3U, 4U}) {
    auto older = restore(version, newer.substr(36, 16));
    ASSERT_TRUE(older.has_value()) << older.error().message;
    EXPECT_EQ(Next(older->sequence, {8}), expected);
  }
}

TEST_P(OneModel, EveryTruncationAndFlippedByteOfASavedSequenceIsRefused) {
  const std::string file = (folder_.path() / "saved.moeseq").string();
  Sequence sequence = engine_->NewSequence();
  Next(sequence, {1, 2});
  ASSERT_TRUE(engine_->SaveSequence(sequence, "n", file));
  const std::string good = ReadAll(file);
  const auto is_refused = [&](const std::string& bytes) {
    WriteAll(file, bytes);
    return !engine_->RestoreSequence(file).has_value();
  };
  ASSERT_FALSE(is_refused(good));
  for (size_t n = 0; n < good.size(); ++n) ASSERT_TRUE(is_refused(good.substr(0, n))) << n;
  EXPECT_TRUE(is_refused(good + "x"));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    ASSERT_TRUE(is_refused(bad)) << i;
  }
}

TEST_P(OneModel, ASavedSequenceOfTheOtherTypeIsRefusedWithTheRemedy) {
  const std::string file = (folder_.path() / "saved.moeseq").string();
  Sequence sequence = engine_->NewSequence();
  Next(sequence, {1, 2});
  ASSERT_TRUE(engine_->SaveSequence(sequence, "", file));
  const KvType type = GetParam() == KvType::kF16 ? KvType::kQ8 : KvType::kF16;
  const auto refused = Open(path_, {.kv_type = type})->RestoreSequence(file);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
  const std::string remedy = "use --kv-type " + std::string(NameOf(GetParam()));
  EXPECT_NE(refused.error().message.find(remedy), std::string::npos) << refused.error().message;
}

TEST_P(OneModel, AnotherModelsSavedSequenceIsRefused) {
  const std::string file = (folder_.path() / "saved.moeseq").string();
  Sequence sequence = engine_->NewSequence();
  Next(sequence, {1, 2});
  ASSERT_TRUE(engine_->SaveSequence(sequence, "", file));
  const auto other = Open(
      WriteTinyModel(folder_.path(), {.arch = "qwen3moe", .type = "Q8_0", .layers = 3, .seed = 9}),
      {.percent = 100.0});
  const auto refused = other->RestoreSequence(file);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("another model"), std::string::npos);
}

}  // namespace
}  // namespace moestro
