// SPDX-License-Identifier: MIT
// Layers with a window keep cells of the last positions alone. Whatever a sequence has been
// through, it goes on with the bits of an engine that keeps cells of all positions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/binary_file.h"
#include "base/hash.h"
#include "engine/append.h"
#include "memory/layer_memory.h"
#include "native/native_engine.h"
#include "native/step_runner.h"
#include "serve/prefix_cache.h"
#include "store/block_reader.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kVocab = 64;
constexpr uint32_t kChunk = 32;
constexpr uint32_t kLong = 4000;  // far more than the windows of all sequences

class WindowTest : public testing::TestWithParam<std::string> {
 protected:
  WindowTest()
      : path_(WriteTinyModel(folder_.path(), {.arch = GetParam(),
                                              .layers = 5,
                                              .embd = 64,
                                              .ff = 32,
                                              .shared_ff = 32,
                                              .dense_ff = 64,
                                              .heads = 2,
                                              .kv_heads = 1,
                                              .head_dim = 32,
                                              .vocab = kVocab,
                                              .context = kLong,
                                              .window = 24})) {}

  std::unique_ptr<NativeEngine> Open(EngineOptions options = {}) {
    options.ctx = kLong;
    if (options.chunk == 0) options.chunk = kChunk;
    options.threads = 2;
    auto engine = NativeEngine::Open(path_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }
  static std::vector<float> Logits(NativeEngine& engine, Sequence& sequence,
                                   std::span<const Token> tokens) {
    const auto logits = Append(engine, sequence, tokens);
    EXPECT_TRUE(logits) << logits.error().message;
    return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }
  // After all of the text, by an engine whose layers with a window have cells of all positions: its
  // context is too short for anything else.
  std::vector<float> Fresh(std::span<const Token> text) {
    EngineOptions options;
    options.ctx = 640;
    options.chunk = 640;
    options.threads = 2;
    const auto engine = NativeEngine::Open(path_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    Sequence sequence = (*engine)->NewSequence();
    return Logits(**engine, sequence, text);
  }
  void ExpectGoesOn(NativeEngine& engine, Sequence& sequence) {
    constexpr Token kNext = 7;
    std::vector<Token> text(sequence.tokens().begin(), sequence.tokens().end());
    text.push_back(kNext);
    EXPECT_EQ(Logits(engine, sequence, {&kNext, 1}), Fresh(text));
  }

  TempFolder folder_;
  std::string path_;
  const std::vector<Token> text_ = SeededTokens(600, kVocab, 3);
};

INSTANTIATE_TEST_SUITE_P(Families, WindowTest,
                         testing::Values("gpt-oss", "exaone-moe", "deepseek4"),
                         [](const auto& arch) { return CaseName(arch.param); });

TEST_P(WindowTest, TakesTheMemoryOfAWindow) {
  EngineOptions whole;
  whole.ctx = 640;
  whole.chunk = kChunk;
  whole.threads = 2;
  const auto shorter = NativeEngine::Open(path_, whole);
  ASSERT_TRUE(shorter);
  // Places of states are counted in any case.
  if (!HasStates(GetParam())) {
    EXPECT_EQ((*shorter)->kv_room().places, Engine::KvRoom::kAnyNumber) << "cells of all positions";
  }
  const auto engine = Open();
  EXPECT_LT(engine->kv_room().places, 10U);
  // Layers without a window have 4000 cells, the others some 1200: a chunk, and windows of one
  // sequence, of what its step began with and of six that are kept.
  const auto remembers = MemoryShape::Of(engine->spec(), KvType::kF16);
  EXPECT_LT(engine->memory().kv, remembers->position_bytes() * kLong * 6 / 10);
}

TEST_P(WindowTest, APromptInPiecesOfAnySizeGivesTheSameBits) {
  const std::vector<float> expected = Fresh(text_);
  for (const uint32_t chunk : {7U, kChunk, 128U}) {
    for (const size_t piece : {size_t{45}, text_.size()}) {
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

TEST_P(WindowTest, SequencesOfOneStepHaveWindowsOfTheirOwn) {
  const auto engine = Open({.sequences = 3});
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < 3; ++i) {
    sequences.push_back(engine->NewSequence());
    Logits(*engine, sequences[i], std::span(text_).subspan(i, 200 + 37 * i));
  }
  Batch batch;
  for (const Sequence& sequence : sequences) {
    batch.rows.push_back({.sequence = sequence.id(),
                          .position = sequence.position(),
                          .token = 5,
                          .kind = RowKind::kDecode});
  }
  ASSERT_TRUE(engine->Step(batch, {}));
  for (Sequence& sequence : sequences) ExpectGoesOn(*engine, sequence);
}

// The first prompt holds a window, and not all of its positions, while the second is computed.
TEST_P(WindowTest, LongPromptsOfOneStepHaveRoom) {
  EngineOptions options;
  options.sequences = 2;
  options.positions = 2 * kLong;
  options.chunk = 2500;  // two of them are more than there is room for
  const auto engine = Open(options);
  const std::vector<Token> text = SeededTokens(options.chunk, kVocab, 5);
  Sequence first = engine->NewSequence();
  Sequence second = engine->NewSequence();
  Batch both = PromptOf(first.id(), text);
  both.rows.append_range(PromptOf(second.id(), text).rows);
  both.rows[text.size() - 1].wants_logits = both.rows.back().wants_logits = true;
  std::vector<std::vector<float>> last;
  const Status stepped = engine->Step(both, [&](size_t, std::span<const float> logits) {
    last.emplace_back(logits.begin(), logits.end());
  });
  ASSERT_TRUE(stepped) << stepped.error().message;
  ASSERT_EQ(first.GoBack(0), 0U);
  const std::vector<float> expected = Logits(*engine, first, text);
  EXPECT_EQ(last, std::vector(2, expected));
}

TEST_P(WindowTest, ForksGoOnApart) {
  const auto engine = Open({.sequences = 3});
  Sequence first = engine->NewSequence();
  Logits(*engine, first, std::span(text_).first(300));
  Sequence second = first.Fork();
  Logits(*engine, first, std::span(text_).subspan(300, 90));
  Sequence third = second.Fork();
  Logits(*engine, third, std::span(text_).subspan(400, 70));
  ExpectGoesOn(*engine, second);
  ExpectGoesOn(*engine, third);
  ExpectGoesOn(*engine, first);
}

TEST_P(WindowTest, ASequenceIsCutBackToWhereAWindowIsHeld) {
  if (HasStates(GetParam()))
    return;  // a state goes back to kept positions (state_families_test.cc)
  const auto engine = Open();
  Sequence sequence = engine->NewSequence();
  Logits(*engine, sequence, std::span(text_).first(300));
  sequence.Keep();
  Logits(*engine, sequence, std::span(text_).subspan(300, 200));
  Logits(*engine, sequence, std::span(text_).subspan(500, 5));
  EXPECT_EQ(sequence.Reach(503), 503U);  // within the last step
  EXPECT_EQ(sequence.Reach(420), 420U);  // a little before the step
  EXPECT_EQ(sequence.Reach(400), 300U);  // kept
  EXPECT_EQ(sequence.Reach(200), 0U);
  EXPECT_EQ(sequence.GoBack(503), 503U);
  ExpectGoesOn(*engine, sequence);
  EXPECT_EQ(sequence.GoBack(400), 300U);
  ExpectGoesOn(*engine, sequence);
  ASSERT_TRUE(CutBackTo(*engine, sequence, 150));  // evaluated again
  EXPECT_EQ(sequence.position(), 150U);
  ExpectGoesOn(*engine, sequence);
}

// Rows that are computed twice have their cells the second time.
TEST_P(WindowTest, APassThatIsNeverSureIsTheModelItself) {
  EngineOptions options;
  options.little = {.n_used = 1, .gamma = 0.999999};
  const auto engine = Open(options);
  Sequence sequence = engine->NewSequence();
  Logits(*engine, sequence, std::span(text_).first(300));
  std::vector<float> last;
  for (const Token token : std::span(text_).subspan(300, 100)) {
    last = Logits(*engine, sequence, {&token, 1});
  }
  EXPECT_EQ(last, Fresh(std::span(text_).first(400)));
}

TEST_P(WindowTest, AnExactCheckChangesNothing) {
  EngineOptions lossy;
  lossy.lossy.drop_below = 0.2;
  const auto plain = Open(lossy);
  lossy.check_every = 1;
  const auto checked = Open(lossy);
  size_t checks = 0;
  checked->SetCheckObserver([&](std::span<const float>, std::span<const float>) { ++checks; });
  Sequence one = plain->NewSequence();
  Sequence other = checked->NewSequence();
  Logits(*plain, one, std::span(text_).first(300));
  Logits(*checked, other, std::span(text_).first(300));
  for (const Token token : std::span(text_).subspan(300, 100)) {
    ASSERT_EQ(Logits(*checked, other, {&token, 1}), Logits(*plain, one, {&token, 1}));
  }
  EXPECT_EQ(checks, 100U);
}

TEST_P(WindowTest, AFailedReadLeavesTheWindowAsItWas) {
  FaultReader* disk = nullptr;
  EngineOptions options;
  options.cache = CacheSize{.percent = 40.0};
  options.prefetch = 0;
  options.wrap_reader = [&](std::unique_ptr<BlockReader> inner) {
    auto faulty = std::make_unique<FaultReader>(std::move(inner));
    disk = faulty.get();
    return faulty;
  };
  const auto engine = Open(options);
  Sequence sequence = engine->NewSequence();
  Logits(*engine, sequence, std::span(text_).first(300));
  size_t failures = 0;
  for (uint64_t nth = 0; nth < 40; nth += 4) {
    disk->SetPlan(FaultScript().ErrorFrom(disk->submitted() + nth, EIO));
    const auto failed = Append(*engine, sequence, std::span(text_).subspan(300, 150));
    disk->SetPlan({});
    if (failed) {
      sequence.GoBack(0);
      Logits(*engine, sequence, std::span(text_).first(300));
    } else {
      ++failures;
    }
    ASSERT_EQ(sequence.position(), 300U);
    Sequence fork = sequence.Fork();
    ExpectGoesOn(*engine, fork);
  }
  EXPECT_GT(failures, 2U);
}

TEST_P(WindowTest, AStopInTheMiddleLeavesTheWindowAsItWas) {
  int looks = 0;
  int at = -1;
  EngineOptions options;
  options.at_look = [&] { return looks++ == at; };
  const auto engine = Open(options);
  Sequence sequence = engine->NewSequence();
  Logits(*engine, sequence, std::span(text_).first(300));
  size_t stops = 0;
  for (const int look : {0, 9, 40, 90, 140}) {
    looks = 0;
    at = look;
    const auto stopped = Append(*engine, sequence, std::span(text_).subspan(300, 200));
    at = -1;
    if (stopped) break;
    ++stops;
    ASSERT_EQ(sequence.position(), 300U);
    Sequence fork = sequence.Fork();
    ExpectGoesOn(*engine, fork);
  }
  EXPECT_GT(stops, 1U);
}

TEST_P(WindowTest, ASavedTextHoldsTheWindow) {
  const std::string path = folder_.File("saved");
  {
    const auto engine = Open();
    Sequence sequence = engine->NewSequence();
    Logits(*engine, sequence, std::span(text_).first(500));
    Logits(*engine, sequence, std::span(text_).subspan(500, 3));
    ASSERT_TRUE(engine->SaveSequence(sequence, "", path));
  }
  const auto engine = Open();
  auto saved = engine->RestoreSequence(path);
  ASSERT_TRUE(saved) << saved.error().message;
  EXPECT_EQ(saved->sequence.position(), 503U);
  ExpectGoesOn(*engine, saved->sequence);
  // Without checkpoints a file of the version before differs in its number alone.
  std::string older = ReadAll(path);
  older[8] = 5;
  older.resize(older.size() - kChecksumBytes);
  Fnv1a sum;
  sum.Add(older);
  AppendNumber(older, sum.value());
  WriteAll(folder_.File("older"), older);
  EXPECT_TRUE(engine->RestoreSequence(folder_.File("older")));
  // An engine with cells of all positions would have to guess those that are missing.
  EngineOptions whole;
  whole.ctx = 640;
  whole.threads = 2;
  const auto shorter = NativeEngine::Open(path_, whole);
  ASSERT_TRUE(shorter);
  const auto refused = (*shorter)->RestoreSequence(path);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
  EXPECT_NE(refused.error().message.find("raise --ctx"), std::string::npos);
}

TEST_P(WindowTest, ASavedTextHoldsWindowsBeforeKeptPositions) {
  const std::string path = folder_.File("saved");
  {
    const auto engine = Open();
    Sequence sequence = engine->NewSequence();
    for (const size_t end : {200U, 300U, 500U}) {
      const size_t begin = sequence.position();
      Logits(*engine, sequence, std::span(text_).subspan(begin, end - begin));
      if (end < 500) sequence.Keep();
    }
    ASSERT_TRUE(engine->SaveSequence(sequence, "", path));
  }
  const auto engine = Open({.sequences = 2});
  const auto peeked = engine->PeekSequence(path);
  ASSERT_TRUE(peeked) << peeked.error().message;
  EXPECT_EQ(peeked->checkpoints, (std::vector<uint32_t>{200, 300}));
  auto saved = engine->RestoreSequence(path);
  ASSERT_TRUE(saved) << saved.error().message;
  Sequence whole = saved->sequence.Fork();
  ExpectGoesOn(*engine, whole);
  for (const uint32_t position : {300U, 200U}) {
    EXPECT_EQ(saved->sequence.GoBack(position + 50), position);
    Sequence fork = saved->sequence.Fork();
    ExpectGoesOn(*engine, fork);
  }
  // Where checkpoints and their windows begin, with a checksum that is right.
  const std::string good = ReadAll(path);
  std::string table;
  for (const uint32_t number : {200U, 300U, 128U, 256U}) AppendNumber(table, number);
  const size_t begin = good.find(table);
  ASSERT_NE(begin, std::string::npos);
  for (size_t at = begin; at < begin + table.size(); ++at) {
    for (const int flip : {0x01, 0x20, 0x80, 0xff}) {
      std::string bad = good.substr(0, good.size() - kChecksumBytes);
      bad[at] = static_cast<char>(bad[at] ^ flip);
      const bool is_checkpoint = at < begin + 2 * sizeof(uint32_t);
      Fnv1a sum;
      sum.Add(bad);
      AppendNumber(bad, sum.value());
      WriteAll(path, bad);
      // Another position with the same window is another text's, which no check can know.
      if (is_checkpoint && (at - begin) % 4 == 0) continue;
      EXPECT_FALSE(engine->RestoreSequence(path)) << "byte " << at - begin << ", " << flip;
    }
  }
  EXPECT_GT(engine->kv_room().places, 0U);
}

// Each number of the header alone, as hostile bytes would have it, with a checksum that is right.
TEST_P(WindowTest, ASavedTextThatLiesIsRefused) {
  const std::string path = folder_.File("saved");
  const auto engine = Open();
  Sequence sequence = engine->NewSequence();
  Logits(*engine, sequence, std::span(text_).first(500));
  ASSERT_TRUE(engine->SaveSequence(sequence, "", path));
  const std::string good = ReadAll(path);
  const auto restored = [&](std::string bytes) {
    bytes.resize(bytes.size() - kChecksumBytes);
    Fnv1a sum;
    sum.Add(bytes);
    AppendNumber(bytes, sum.value());
    WriteAll(path, bytes);
    return engine->RestoreSequence(path).has_value();
  };
  ASSERT_TRUE(restored(good));
  constexpr size_t kHeader = 80;
  for (size_t at = 8; at < kHeader; ++at) {
    for (const int flip : {0x01, 0x20, 0x80, 0xff}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      EXPECT_FALSE(restored(bad)) << "byte " << at << " flipped by " << flip;
    }
  }
  // The first position of layers with a window (the last number) says what is there.
  for (const uint32_t first : {0U, 32U, 320U, 448U, 480U, 500U, 512U, 0xffffffe0U}) {
    std::string bad = good;
    std::memcpy(bad.data() + kHeader - sizeof(first), &first, sizeof(first));
    EXPECT_EQ(restored(bad), bad == good) << first;
  }
}

TEST_P(WindowTest, ATextWithCellsOfAllPositionsIsReadIntoWindows) {
  const std::string path = folder_.File("saved");
  EngineOptions whole;
  whole.ctx = 640;
  whole.chunk = kChunk;
  whole.threads = 2;
  const auto shorter = NativeEngine::Open(path_, whole);
  ASSERT_TRUE(shorter);
  Sequence sequence = (*shorter)->NewSequence();
  Logits(**shorter, sequence, std::span(text_).first(450));
  ASSERT_TRUE((*shorter)->SaveSequence(sequence, "", path));
  const auto engine = Open();
  auto saved = engine->RestoreSequence(path);
  ASSERT_TRUE(saved) << saved.error().message;
  ExpectGoesOn(*engine, saved->sequence);
}

TEST_P(WindowTest, AServersPrefixBeginsATextWhereItCan) {
  const auto engine = Open({.sequences = 2});
  const Clock clock = SteadySeconds;
  PrefixCache prefixes(*engine, clock, {});
  Sequence text = engine->NewSequence();
  Logits(*engine, text, std::span(text_).first(200));
  text.Keep();
  Logits(*engine, text, std::span(text_).subspan(200, 300));
  prefixes.Keep(std::move(text));
  std::vector<Token> longer(text_.begin(), text_.begin() + 520);
  Sequence whole = prefixes.Begin(longer);
  EXPECT_EQ(whole.position(), 500U);
  ExpectGoesOn(*engine, whole);
  std::vector<Token> edited = longer;
  edited[350] = (edited[350] + 1) % static_cast<Token>(kVocab);
  Sequence kept = prefixes.Begin(edited);
  EXPECT_EQ(kept.position(), 200U);
  ExpectGoesOn(*engine, kept);
}

TEST_P(WindowTest, APrefixOnDiskBeginsATextWithItsLastWindow) {
  const std::string folder = folder_.File("prefixes");
  const Clock clock = SteadySeconds;
  std::vector<Token> longer(text_.begin(), text_.begin() + 520);
  {
    const auto engine = Open({.sequences = 2});
    PrefixCache prefixes(*engine, clock, {.folder = folder, .disk_bytes = 1U << 30});
    Sequence text = engine->NewSequence();
    Logits(*engine, text, std::span(text_).first(500));
    prefixes.Keep(std::move(text));
    while (prefixes.SaveOne(clock())) {
    }
  }
  const auto engine = Open({.sequences = 2});
  PrefixCache prefixes(*engine, clock, {.folder = folder, .disk_bytes = 1U << 30});
  Sequence whole = prefixes.Begin(longer);
  EXPECT_EQ(whole.position(), 500U);
  ExpectGoesOn(*engine, whole);
  longer[350] = (longer[350] + 1) % static_cast<Token>(kVocab);
  Sequence edited = prefixes.Begin(longer);
  EXPECT_EQ(edited.position(), 0U) << "no position was kept";
}

TEST_P(WindowTest, APrefixOnDiskBeginsATextFromAKeptPosition) {
  const std::string folder = folder_.File("prefixes");
  const Clock clock = SteadySeconds;
  {
    const auto engine = Open({.sequences = 2});
    PrefixCache prefixes(*engine, clock, {.folder = folder, .disk_bytes = 1U << 30});
    Sequence text = engine->NewSequence();
    Logits(*engine, text, std::span(text_).first(200));
    text.Keep();
    Logits(*engine, text, std::span(text_).subspan(200, 300));
    prefixes.Keep(std::move(text));
    while (prefixes.SaveOne(clock())) {
    }
  }
  const auto engine = Open({.sequences = 2});
  PrefixCache prefixes(*engine, clock, {.folder = folder, .disk_bytes = 1U << 30});
  std::vector<Token> edited(text_.begin(), text_.begin() + 520);
  edited[230] = (edited[230] + 1) % static_cast<Token>(kVocab);
  Sequence kept = prefixes.Begin(edited);
  EXPECT_EQ(kept.position(), 200U);
  ExpectGoesOn(*engine, kept);
}

TEST_P(WindowTest, MadeUpPositionsHaveAWindow) {
  const auto engine = Open();
  Sequence sequence = engine->NewSequence();
  ASSERT_TRUE(engine->MakeUp(sequence, SeededTokens(3000, kVocab, 4), 1));
  EXPECT_EQ(sequence.position(), 3000U);
  const std::vector<float> once = Logits(*engine, sequence, std::span(text_).first(40));
  Sequence again = engine->NewSequence();
  sequence.GoBack(0);
  ASSERT_TRUE(engine->MakeUp(again, SeededTokens(3000, kVocab, 4), 1));
  EXPECT_EQ(Logits(*engine, again, std::span(text_).first(40)), once);
}

}  // namespace
}  // namespace moestro
