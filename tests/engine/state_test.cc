// SPDX-License-Identifier: MIT
// Layers with a state that cannot be cut back (tests/support/running_sum_testing.h): whatever a
// sequence has been through, it goes on with the bits of one that was evaluated from its beginning.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/append.h"
#include "model/model_file.h"
#include "native/native_engine.h"
#include "serve/prefix_cache.h"
#include "serve/prefix_files.h"
#include "serve/prefix_pool.h"
#include "store/block_reader.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/float_model_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/running_sum_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "text/draft_control.h"
#include "text/drafts.h"
#include "text/text_loop.h"

namespace moestro {
namespace {

constexpr uint32_t kVocab = 48;

// Two layers of four have a state.
FloatShape Shape() { return {.layers = 4, .vocab = kVocab, .state_every = 2}; }

class StateTest : public testing::Test {
 protected:
  StateTest() { FloatModel(Shape(), 5).Write(folder_.File("model.gguf")); }

  std::unique_ptr<NativeEngine> Open(EngineOptions options = {}) {
    options.ctx = 64;
    options.threads = 2;
    options.make_state_mixer = MakeRunningSum;
    const Family family = SyntheticFamily(Shape());
    auto model = ModelFile::Open(folder_.File("model.gguf"), {&family, 1});
    if (!model) {
      ADD_FAILURE() << model.error().message;
      return nullptr;
    }
    auto engine = NativeEngine::Open(*std::move(model), options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }

  static std::vector<float> Logits(NativeEngine& engine, Sequence& sequence,
                                   std::span<const Token> tokens) {
    const auto logits = Append(engine, sequence, tokens);
    EXPECT_TRUE(logits) << logits.error().message;
    return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }
  // After all of the text, evaluated from its beginning, token by token.
  std::vector<float> Fresh(std::span<const Token> text, const EngineOptions& options = {}) {
    const auto engine = Open(options);
    Sequence sequence = engine->NewSequence();
    std::vector<float> last;
    for (size_t i = 0; i < text.size(); ++i) {
      last = Logits(*engine, sequence, text.subspan(i, 1));
    }
    return last;
  }
  // The sequence goes on by one token as if it had been evaluated from its beginning.
  void ExpectGoesOn(NativeEngine& engine, Sequence& sequence, const EngineOptions& options = {}) {
    constexpr Token kNext = 7;
    std::vector<Token> text(sequence.tokens().begin(), sequence.tokens().end());
    text.push_back(kNext);
    EXPECT_EQ(Logits(engine, sequence, {&kNext, 1}), Fresh(text, options));
  }

  TempFolder folder_;
  const std::vector<Token> text_ = SeededTokens(40, kVocab, 3);
};

TEST_F(StateTest, APromptInPiecesOfAnySizeGivesTheSameBits) {
  const std::vector<float> expected = Fresh(text_);
  for (const uint32_t chunk : {0U, 1U, 4U, 32U}) {
    for (const size_t piece : {size_t{3}, text_.size()}) {
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

TEST_F(StateTest, RowsOfSeveralSequencesInOneStepHaveStatesOfTheirOwn) {
  const auto engine = Open({.sequences = 3});
  std::vector<Sequence> sequences;
  for (size_t s = 0; s < 3; ++s) {
    sequences.push_back(engine->NewSequence());
    Logits(*engine, sequences[s], std::span(text_).subspan(s, 4 + s));
  }
  Batch batch;  // two rows of each, in turn
  for (uint32_t i = 0; i < 2; ++i) {
    for (const Sequence& sequence : sequences) {
      batch.rows.push_back({.sequence = sequence.id(),
                            .position = sequence.position() + i,
                            .token = static_cast<Token>(10 + i)});
    }
  }
  ASSERT_TRUE(engine->Step(batch, {}));
  for (Sequence& sequence : sequences) ExpectGoesOn(*engine, sequence);
}

// Between two layers of a prompt another sequence is decoded.
TEST_F(StateTest, StepsBetweenPiecesLeaveBothStates) {
  const auto engine = Open({.sequences = 2});
  Sequence prompt = engine->NewSequence();
  Sequence other = engine->NewSequence();
  Logits(*engine, prompt, std::span(text_).first(6));
  Logits(*engine, other, std::span(text_).subspan(20, 3));
  size_t runs = 0;
  const auto run =
      engine->Begin(RowsOf(prompt, std::span(text_).subspan(6, 9), RowKind::kPrompt), {});
  ASSERT_TRUE(run) << run.error().message;
  for (Result<bool> has_ended = false; !*has_ended;) {
    const Token token = text_[23 + runs++];
    ASSERT_TRUE(engine->Step(RowsOf(other, {&token, 1}, RowKind::kDecode)));
    has_ended = (*run)->Advance();
    ASSERT_TRUE(has_ended) << has_ended.error().message;
  }
  EXPECT_GE(runs, 3U);
  EXPECT_EQ(other.position(), 3 + runs);
  ExpectGoesOn(*engine, prompt);
  ExpectGoesOn(*engine, other);
}

TEST_F(StateTest, ForksShareAStateUntilOneGoesOn) {
  const auto engine = Open({.sequences = 3});
  Sequence first = engine->NewSequence();
  Logits(*engine, first, std::span(text_).first(9));
  const uint32_t free = engine->kv_room().places;
  Sequence second = first.Fork();
  EXPECT_EQ(engine->kv_room().places, free);
  const Token other = 11;
  Logits(*engine, first, {&other, 1});
  Sequence third = second.Fork();
  ExpectGoesOn(*engine, second);
  ExpectGoesOn(*engine, third);
  ExpectGoesOn(*engine, first);
}

TEST_F(StateTest, ASequenceIsCutBackToWhereAStateIsKept) {
  const auto engine = Open();
  Sequence sequence = engine->NewSequence();
  Logits(*engine, sequence, std::span(text_).first(8));
  sequence.Keep();
  Logits(*engine, sequence, std::span(text_).subspan(8, 5));
  Logits(*engine, sequence, std::span(text_).subspan(13, 1));
  Logits(*engine, sequence, std::span(text_).subspan(14, 1));
  EXPECT_EQ(sequence.Reach(15), 15U);
  EXPECT_EQ(sequence.Reach(14), 14U);  // before the last step
  EXPECT_EQ(sequence.Reach(13), 8U);   // kept
  EXPECT_EQ(sequence.Reach(7), 0U);
  EXPECT_EQ(sequence.GoBack(12), 8U);
  EXPECT_EQ(sequence.position(), 8U);
  ExpectGoesOn(*engine, sequence);
  EXPECT_EQ(sequence.GoBack(8), 8U);  // still kept
  ExpectGoesOn(*engine, sequence);
  EXPECT_EQ(sequence.GoBack(5), 0U);
  ExpectGoesOn(*engine, sequence);
}

TEST_F(StateTest, RowsWithinAStepAreKept) {
  for (const uint32_t chunk : {0U, 4U}) {
    const auto engine = Open({.chunk = chunk, .sequences = 2});
    Sequence one = engine->NewSequence();
    Sequence two = engine->NewSequence();
    Batch batch;  // rows of both in turn
    for (uint32_t i = 0; i < 12; ++i) {
      for (const Sequence* sequence : {&one, &two}) {
        batch.rows.push_back({.sequence = sequence->id(),
                              .position = i,
                              .token = text_[i],
                              .kind = RowKind::kPrompt,
                              .is_kept = sequence == &one ? i == 4 || i == 7 : i == 6});
      }
    }
    ASSERT_TRUE(engine->Step(batch, {}));
    EXPECT_EQ(one.Reach(11), 8U);
    EXPECT_EQ(two.Reach(11), 7U);
    Sequence fork = one.Fork();
    EXPECT_EQ(one.GoBack(7), 5U);
    ExpectGoesOn(*engine, one);
    ExpectGoesOn(*engine, two);
    EXPECT_EQ(fork.GoBack(10), 8U);
    ExpectGoesOn(*engine, fork);
  }
}

TEST_F(StateTest, AStoppedStepKeepsNothing) {
  int looks = 0;
  int at = -1;
  EngineOptions options;
  options.chunk = 4;
  options.at_look = [&] { return looks++ == at; };
  const auto engine = Open(options);
  Sequence sequence = engine->NewSequence();
  Logits(*engine, sequence, std::span(text_).first(8));
  const uint32_t free = engine->kv_room().places;
  for (const int look : {0, 4, 9, 14}) {
    looks = 0;
    at = look;
    Batch batch = RowsOf(sequence, std::span(text_).subspan(8, 12), RowKind::kPrompt);
    batch.rows[2].is_kept = batch.rows[9].is_kept = true;
    const Status stopped = engine->Step(batch, {});
    at = -1;
    ASSERT_FALSE(stopped) << look;
    EXPECT_EQ(sequence.position(), 8U);
    EXPECT_EQ(sequence.Reach(7), 0U);
    EXPECT_EQ(engine->kv_room().places, free);
  }
  ExpectGoesOn(*engine, sequence);
}

TEST_F(StateTest, WhatLiesBehindAKeptStateIsEvaluatedAgain) {
  const auto engine = Open();
  Sequence sequence = engine->NewSequence();
  Logits(*engine, sequence, std::span(text_).first(8));
  sequence.Keep();
  Logits(*engine, sequence, std::span(text_).subspan(8));
  ASSERT_TRUE(CutBackTo(*engine, sequence, 12));
  EXPECT_EQ(std::vector(sequence.tokens().begin(), sequence.tokens().end()),
            std::vector(text_.begin(), text_.begin() + 12));
  ExpectGoesOn(*engine, sequence);
}

// Says what it was told to.
class ScriptedDrafter final : public Drafter {
 public:
  explicit ScriptedDrafter(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Result<Draft> Propose(std::span<const Token> text, uint32_t most) override {
    Draft draft;
    for (size_t at = text.size(); at < tokens_.size() && draft.tokens.size() < most; ++at) {
      draft.tokens.push_back(tokens_[at]);
    }
    return draft;
  }

 private:
  std::vector<Token> tokens_;
};

class SilentReader final : public TextReader {
 public:
  bool Tell(TextEvent /*event*/) override { return true; }
};

TEST_F(StateTest, DraftsThatAreRejectedLeaveNothing) {
  const auto engine = Open();
  std::vector<Token> drafts = text_;  // right but for two
  drafts[9] = (drafts[9] + 1) % static_cast<Token>(kVocab);
  drafts[17] = (drafts[17] + 1) % static_cast<Token>(kVocab);
  SilentReader reader;
  const auto n_known = static_cast<int64_t>(text_.size()) - 5;
  const TextOptions known{.prompt = {text_.begin(), text_.begin() + 5},
                          .generate = {.max_tokens = n_known}};
  const Clock clock = [] { return 0.0; };
  size_t next = 5;
  auto text = std::make_unique<RunningText>(
      reader, known, engine->NewSequence(),
      [&](std::span<const float> logits, std::span<const Token>) -> Result<Token> {
        EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()),
                  Fresh(std::span(text_).first(next)))
            << next;
        return text_[next++];
      },
      nullptr, clock);
  const auto control = std::make_shared<DraftControl>(4);
  for (int i = 0; i < 16; ++i) control->Plain(1.0);  // so drafts, which take no time, are tried
  text->DraftWith(std::make_unique<ScriptedDrafter>(drafts), control, *engine);
  LoneText lone(*engine, std::move(text), clock);
  lone.Write();
  ASSERT_TRUE(lone.text().ending()->has_value());
  EXPECT_GT(engine->stats().drafts.proposed, engine->stats().drafts.accepted + 1);
  Sequence sequence = lone.text().TakeSequence();
  ExpectGoesOn(*engine, sequence);
}

TEST_F(StateTest, DraftsByALittleModelLeaveNothing) {
  const auto engine = Open();
  Sequence sequence = engine->NewSequence();
  Logits(*engine, sequence, std::span(text_).first(9));
  LittleDrafter drafter(*engine, sequence);
  std::vector<Token> text(text_.begin(), text_.begin() + 10);
  const auto draft = drafter.Propose(text, 3);
  ASSERT_TRUE(draft) << draft.error().message;
  EXPECT_EQ(draft->tokens.size(), 3U);
  EXPECT_EQ(sequence.position(), 9U);
  ExpectGoesOn(*engine, sequence);
}

// The first pass of each step is never sure enough.
TEST_F(StateTest, ASecondPassGoesOnFromWhereTheFirstDid) {
  EngineOptions options;
  options.little = {.n_used = 1, .gamma = 0.999999};
  const auto engine = Open(options);
  Sequence sequence = engine->NewSequence();
  std::vector<float> last;
  for (size_t i = 0; i < text_.size(); ++i) {
    last = Logits(*engine, sequence, std::span(text_).subspan(i, 1));
  }
  EXPECT_EQ(engine->stats().little.again, text_.size());
  EXPECT_EQ(last, Fresh(text_));
}

TEST_F(StateTest, AnExactCheckChangesNoState) {
  EngineOptions lossy;
  lossy.lossy.drop_below = 0.3;
  lossy.cache = CacheSize{.percent = 50.0};
  EngineOptions checked = lossy;
  checked.check_every = 1;
  const auto engine = Open(checked);
  size_t checks = 0;
  engine->SetCheckObserver([&](std::span<const float>, std::span<const float>) { ++checks; });
  Sequence sequence = engine->NewSequence();
  std::vector<float> last;
  for (size_t i = 0; i < text_.size(); ++i) {
    last = Logits(*engine, sequence, std::span(text_).subspan(i, 1));
  }
  EXPECT_EQ(checks, text_.size());
  EXPECT_EQ(last, Fresh(text_, lossy));
}

TEST_F(StateTest, AFailedReadLeavesTheStateAsItWas) {
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
  Logits(*engine, sequence, std::span(text_).first(8));
  for (uint64_t nth = 0; nth < 12; ++nth) {
    const auto n = static_cast<size_t>(nth % 2 == 0 ? 1 : 5);
    disk->SetPlan(FaultScript().ErrorFrom(disk->submitted() + nth, EIO));
    const auto tokens = std::span(text_).subspan(8 + nth, n);
    const auto failed = Append(*engine, sequence, tokens);
    disk->SetPlan({});
    if (failed) {  // it needed fewer reads than go well
      sequence.GoBack(0);
      Logits(*engine, sequence, std::span(text_).first(8));
    } else {
      EXPECT_EQ(failed.error().code, Errc::kIo);
    }
    EXPECT_EQ(sequence.position(), 8U);
    Sequence fork = sequence.Fork();
    ExpectGoesOn(*engine, fork);
  }
}

TEST_F(StateTest, AStopInTheMiddleLeavesTheStateAsItWas) {
  int looks = 0;
  int at = -1;
  EngineOptions options;
  options.chunk = 4;
  options.at_look = [&] { return looks++ == at; };
  const auto engine = Open(options);
  Sequence sequence = engine->NewSequence();
  Logits(*engine, sequence, std::span(text_).first(8));
  bool has_ended = false;
  size_t stops = 0;
  for (int look = 0; !has_ended; look += 3) {
    looks = 0;
    at = look;
    Sequence fork = sequence.Fork();
    const auto stopped = Append(*engine, fork, std::span(text_).subspan(8, 9));
    at = -1;
    has_ended = stopped.has_value();
    if (has_ended) break;
    ++stops;
    EXPECT_EQ(stopped.error().code, Errc::kInterrupted);
    ASSERT_EQ(fork.position(), 8U);
    if (look % 30 == 0) ExpectGoesOn(*engine, fork);
  }
  EXPECT_GT(stops, 4U);
  ExpectGoesOn(*engine, sequence);
}

TEST_F(StateTest, ASavedFileHoldsTheState) {
  const std::string path = folder_.File("saved");
  {
    const auto engine = Open();
    Sequence sequence = engine->NewSequence();
    Logits(*engine, sequence, std::span(text_).first(20));
    ASSERT_TRUE(engine->SaveSequence(sequence, "", path));
  }
  const auto engine = Open();
  auto saved = engine->RestoreSequence(path);
  ASSERT_TRUE(saved) << saved.error().message;
  EXPECT_EQ(saved->sequence.position(), 20U);
  EXPECT_EQ(saved->sequence.Reach(19), 0U);
  ExpectGoesOn(*engine, saved->sequence);
}

TEST_F(StateTest, ASavedFileHoldsCheckpoints) {
  const std::string path = folder_.File("saved");
  {
    const auto engine = Open();
    Sequence sequence = engine->NewSequence();
    Batch batch = RowsOf(sequence, text_, RowKind::kPrompt);
    for (const size_t row : {3U, 8U, 9U, 19U, 29U, 31U, 38U}) batch.rows[row].is_kept = true;
    ASSERT_TRUE(engine->Step(batch, {}));
    EXPECT_EQ(sequence.Reach(31), 30U);
    ASSERT_TRUE(engine->SaveSequence(sequence, "", path));
  }
  const auto engine = Open();
  const auto peeked = engine->PeekSequence(path);
  ASSERT_TRUE(peeked) << peeked.error().message;
  // The last one, and those with the most tokens behind the one before.
  EXPECT_EQ(peeked->checkpoints, (std::vector<uint32_t>{9, 20, 30, 39}));
  auto saved = engine->RestoreSequence(path);
  ASSERT_TRUE(saved) << saved.error().message;
  for (const uint32_t position : peeked->checkpoints | std::views::reverse) {
    EXPECT_EQ(saved->sequence.GoBack(position), position);
    Sequence fork = saved->sequence.Fork();
    ExpectGoesOn(*engine, fork);
  }
}

TEST_F(StateTest, ADamagedFileIsRefusedAndNothingIsTaken) {
  const std::string path = folder_.File("saved");
  const auto engine = Open();
  Sequence sequence = engine->NewSequence();
  Batch batch = RowsOf(sequence, std::span(text_).first(5), RowKind::kPrompt);
  batch.rows[2].is_kept = true;
  ASSERT_TRUE(engine->Step(batch, {}));
  ASSERT_TRUE(engine->SaveSequence(sequence, "", path));
  const std::string good = ReadAll(path);
  const uint32_t free = engine->kv_room().places;
  const auto is_refused = [&](const std::string& bytes) {
    WriteAll(path, bytes);
    return !engine->RestoreSequence(path).has_value();
  };
  ASSERT_FALSE(is_refused(good));
  for (size_t n = 0; n < good.size(); n += n < 200 ? 1 : 61) {
    ASSERT_TRUE(is_refused(good.substr(0, n))) << n;
    std::string bad = good;
    bad[n] = static_cast<char>(bad[n] ^ 1);
    ASSERT_TRUE(is_refused(bad)) << n;
  }
  EXPECT_EQ(engine->kv_room().places, free);
  ExpectGoesOn(*engine, sequence);
}

TEST_F(StateTest, AServersPrefixBeginsATextWhereItCan) {
  const std::string folder = folder_.File("prefixes");
  const auto engine = Open({.sequences = 2});
  const Clock clock = SteadySeconds;
  std::vector<Token> longer = text_;
  longer.push_back(5);
  std::vector<Token> edited = text_;
  edited[14] = (edited[14] + 1) % static_cast<Token>(kVocab);
  {
    PrefixCache prefixes(*engine, clock, {.folder = folder, .disk_bytes = 1U << 30});
    Sequence text = engine->NewSequence();
    Logits(*engine, text, std::span(text_).first(12));
    text.Keep();
    Logits(*engine, text, std::span(text_).subspan(12));
    prefixes.Keep(std::move(text));
    Sequence whole = prefixes.Begin(longer);
    EXPECT_EQ(whole.position(), text_.size());
    ExpectGoesOn(*engine, whole);
    Sequence checkpoint = prefixes.Begin(edited);
    EXPECT_EQ(checkpoint.position(), 12U);
    ExpectGoesOn(*engine, checkpoint);
    while (prefixes.SaveOne(clock())) {
    }
  }
  PrefixFiles files(*engine, folder, "", 1U << 30);
  const auto cut = files.Find(edited, static_cast<uint32_t>(edited.size()));
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->common, 12U);
  EXPECT_TRUE(files.Find(longer, static_cast<uint32_t>(text_.size())));
  auto restored = files.Restore(*cut);
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_EQ(restored->GoBack(13), 12U) << "its checkpoint is in the file";
  ExpectGoesOn(*engine, *restored);
  PrefixCache prefixes(*engine, clock, {.folder = folder, .disk_bytes = 1U << 30});
  Sequence whole = prefixes.Begin(longer);
  EXPECT_EQ(whole.position(), text_.size());
  ExpectGoesOn(*engine, whole);
}

// The short one can be gone on from where the long one cannot be cut back to.
TEST_F(StateTest, AKeptTextStaysBesideALongerOneThatDoesNotCoverIt) {
  const auto engine = Open({.sequences = 2});
  PrefixPool kept;
  Sequence first = engine->NewSequence();
  Logits(*engine, first, std::span(text_).first(10));
  Sequence second = engine->NewSequence();
  Logits(*engine, second, text_);
  kept.Keep(std::move(first), false, 1.0);
  kept.Keep(std::move(second), false, 2.0);
  EXPECT_EQ(kept.all().size(), 2U);
  const auto match = kept.Find(std::span(text_).first(15), 14);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->common, 10U);
}

TEST_F(StateTest, TheLastRowsAreRepeatedWhereTheyCanBe) {
  const auto engine = Open();
  Sequence sequence = engine->NewSequence();
  Logits(*engine, sequence, std::span(text_).first(8));
  Sequence* const all = &sequence;
  auto seconds = engine->ProbeComputeSeconds({&all, 1});
  ASSERT_TRUE(seconds) << seconds.error().message;
  EXPECT_FALSE(*seconds) << "the last step was more than a token";
  Logits(*engine, sequence, std::span(text_).subspan(8, 1));
  seconds = engine->ProbeComputeSeconds({&all, 1});
  ASSERT_TRUE(seconds) << seconds.error().message;
  EXPECT_TRUE(*seconds);
  EXPECT_EQ(sequence.position(), 9U);
  ExpectGoesOn(*engine, sequence);
}

// A place that was used before holds no zeros.
TEST_F(StateTest, MadeUpPositionsHaveAStateOfTheirOwn) {
  std::vector<std::vector<float>> said;
  for (const bool was_used : {false, true}) {
    const auto engine = Open();
    if (was_used) {
      Sequence before = engine->NewSequence();
      Logits(*engine, before, std::span(text_).first(5));
    }
    Sequence sequence = engine->NewSequence();
    ASSERT_TRUE(engine->MakeUp(sequence, std::span(text_).first(20), 3));
    EXPECT_EQ(sequence.Reach(20), 20U);
    said.push_back(Logits(*engine, sequence, std::span(text_).subspan(20, 1)));
  }
  EXPECT_EQ(said[0], said[1]);
}

TEST_F(StateTest, WithoutAMixerForTheStateTheModelIsRefused) {
  const Family family = SyntheticFamily(Shape());
  auto model = ModelFile::Open(folder_.File("model.gguf"), {&family, 1});
  ASSERT_TRUE(model);
  const auto engine = NativeEngine::Open(*std::move(model), EngineOptions{.threads = 1, .ctx = 64});
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Errc::kUnsupported);
}

TEST_F(StateTest, MoreSequencesThanPlacesAreRefusedAndNothingIsLost) {
  const auto engine = Open();
  std::vector<Sequence> sequences;
  Status status;
  while (status) {
    sequences.push_back(engine->NewSequence());
    const Batch batch = RowsOf(sequences.back(), std::span(text_).first(3), RowKind::kPrompt);
    status = engine->Step(batch, {});
    ASSERT_LT(sequences.size(), 20U);
  }
  EXPECT_EQ(status.error().code, Errc::kInvalidRequest);
  sequences.pop_back();
  sequences.pop_back();
  for (Sequence& sequence : sequences) ExpectGoesOn(*engine, sequence);
}

}  // namespace
}  // namespace moestro
