// SPDX-License-Identifier: MIT
// Models with an encoder and a decoder: against plain loops, the same bits over budgets and chunks,
// and what a sequence with a source may and may not do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/input_file.h"
#include "base/json.h"
#include "base/number.h"
#include "core/random_tokens.h"
#include "model/vocab.h"
#include "native/native_engine.h"
#include "offline/convert/convert.h"
#include "offline/eval/eval.h"
#include "offline/quantize.h"
#include "tests/support/plain_switch_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"
#include "text/divergence.h"
#include "text/span_corruption.h"

namespace moestro {
namespace {

constexpr uint32_t kVocab = 512;

struct EncoderSetting {
  double percent = 100.0;
  uint32_t threads = 2;
  std::string reader = "auto";
  uint32_t prefetch = 1;
  uint32_t sequences = 2;
  KvType kv_type = KvType::kF32;
  uint32_t capacity = 0;
  uint32_t chunk = 0;
};

TinySpec Tiny(bool is_tied = false, const std::string& type = "F32") {
  return {.arch = "switch",
          .type = type,
          .layers = 4,
          .experts = 8,
          .embd = 128,
          .ff = 96,
          .dense_ff = 160,
          .heads = 4,
          .head_dim = 32,
          .vocab = kVocab,
          .is_tied = is_tied};
}

std::vector<Token> Source(size_t n, uint32_t seed = 3) {
  std::vector<Token> tokens = RandomTokens(n, kVocab, seed);
  for (Token& token : tokens) token = std::max(token, 2);  // 1 ends a source
  tokens.back() = 1;
  return tokens;
}

// Behind the token with which a target begins.
std::vector<Token> Target(size_t n, uint32_t seed = 4) {
  std::vector<Token> tokens = RandomTokens(n, kVocab, seed);
  tokens.front() = 0;
  return tokens;
}

class EncoderTest : public ::testing::Test {
 protected:
  std::unique_ptr<NativeEngine> Open(const std::string& path, const EncoderSetting& setting) {
    EngineOptions options;
    options.threads = setting.threads;
    options.reader = setting.reader;
    options.prefetch = setting.prefetch;
    options.sequences = setting.sequences;
    options.kv_type = setting.kv_type;
    options.capacity = setting.capacity;
    options.chunk = setting.chunk;
    options.cache = CacheSize{.percent = setting.percent};
    auto engine = NativeEngine::Open(path, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }

  // Appends rows and returns the logits of the target's.
  static Result<std::vector<float>> Step(Engine& engine, const Sequence& sequence,
                                         std::span<const Token> tokens, uint32_t n_source,
                                         RowKind kind = RowKind::kPrompt) {
    Batch batch;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto position = static_cast<uint32_t>(sequence.position() + i);
      batch.rows.push_back({.sequence = sequence.id(),
                            .position = position,
                            .token = tokens[i],
                            .kind = kind,
                            .wants_logits = position >= n_source});
    }
    std::vector<float> all;
    TRY_STATUS(engine.Step(
        batch, [&](size_t, std::span<const float> logits) { all.append_range(logits); }));
    return all;
  }

  // The target's logits; `at_once` tokens of it come with the source, the others one by one.
  static std::vector<float> Evaluate(Engine& engine, const std::vector<Token>& source,
                                     const std::vector<Token>& target, size_t at_once) {
    const Sequence sequence = engine.NewSequence();
    std::vector<Token> prompt = source;
    prompt.append_range(std::span(target).first(at_once));
    const auto n_source = static_cast<uint32_t>(source.size());
    auto all = Step(engine, sequence, prompt, n_source);
    EXPECT_TRUE(all) << all.error().message;
    if (!all) return {};
    for (size_t i = at_once; i < target.size(); ++i) {
      const auto next = Step(engine, sequence, {&target[i], 1}, n_source, RowKind::kDecode);
      EXPECT_TRUE(next) << next.error().message;
      if (next) all->append_range(*next);
    }
    return *std::move(all);
  }

  static void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected,
                         double share) {
    ASSERT_EQ(got.size(), expected.size());
    const double n = static_cast<double>(expected.size());
    const double mean = std::reduce(expected.begin(), expected.end(), 0.0) / n;
    double squares = 0.0;
    double most = 0.0;
    for (size_t i = 0; i < got.size(); ++i) {
      squares += (expected[i] - mean) * (expected[i] - mean);
      most = std::max(most, std::abs(double{got[i]} - expected[i]));
    }
    EXPECT_LT(most / std::sqrt(squares / n), share);
  }
  static void ExpectSame(const std::vector<float>& got, const std::vector<float>& expected,
                         const std::string& what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0) << what;
  }

  TempFolder folder_;
};

// F32 throughout: sums of up to 160 terms in another order.
constexpr double kTolerance = 5e-5;

TEST_F(EncoderTest, PlainLoopsGiveTheSameLogits) {
  for (const bool is_tied : {false, true}) {
    const std::string path = WriteTinyModel(folder_.path(), Tiny(is_tied));
    const PlainSwitch plain(path);
    const auto engine = Open(path, {});
    ASSERT_NE(engine, nullptr);
    for (const size_t n_source : {size_t{1}, size_t{7}, size_t{40}, size_t{90}}) {
      const auto source = Source(n_source, static_cast<uint32_t>(n_source));
      const auto target = Target(12);
      SCOPED_TRACE(std::to_string(n_source) + (is_tied ? " tied" : ""));
      ExpectNear(Evaluate(*engine, source, target, 1), plain.Logits(source, target), kTolerance);
    }
  }
}

// Goldens of transformers (scripts/switch_goldens.py).
class TransformersTest : public EncoderTest, public ::testing::WithParamInterface<std::string> {
 protected:
  static std::string GoldenFolder() { return MOESTRO_SOURCE_DIR "/tests/goldens/switch/"; }
  static std::vector<Token> Tokens(JsonView list) {
    std::vector<Token> tokens;
    for (size_t i = 0; i < list.size(); ++i) {
      tokens.push_back(static_cast<Token>(list.At(i)->number().value_or(-1)));
    }
    return tokens;
  }
  std::string Convert(const std::string& name) const {
    const std::string path = folder_.path() / (name + ".gguf");
    const auto made = ConvertFolder(
        {.folder = GoldenFolder() + name, .path = path, .type = GGML_TYPE_F32, .threads = 2});
    EXPECT_TRUE(made) << made.error().message;
    return path;
  }
};

TEST_P(TransformersTest, LogitsAndGreedyTokensAreEqual) {
  const auto text = ReadSmallFile(GoldenFolder() + GetParam() + ".json", 16 * kMiB);
  ASSERT_TRUE(text);
  const auto golden = Json::Parse(*text);
  ASSERT_TRUE(golden) << golden.error().message;
  const std::string path = Convert(std::string(golden->Find("model")->text().value_or("")));
  const double capacity = golden->Find("expert_capacity")->number().value_or(0.0);
  const auto engine = Open(path, {.capacity = static_cast<uint32_t>(capacity)});
  ASSERT_NE(engine, nullptr);
  const uint32_t n_vocab = engine->facts().n_vocab;
  const JsonView cases = *golden->Find("cases");
  ASSERT_EQ(cases.size(), 3U);
  for (size_t c = 0; c < cases.size(); ++c) {
    SCOPED_TRACE(c);
    const auto source = Tokens(*cases.At(c)->Find("input_ids"));
    const auto greedy = Tokens(*cases.At(c)->Find("tokens"));
    ASSERT_EQ(source.back(), 1) << "a source ends";
    std::vector<Token> target{0};
    target.append_range(greedy);
    const std::vector<float> got = Evaluate(*engine, source, target, 1);
    std::vector<float> expected;
    const JsonView logits = *cases.At(c)->Find("logits");
    for (size_t i = 0; i < logits.size(); ++i) {
      for (size_t v = 0; v < n_vocab; ++v) {
        expected.push_back(static_cast<float>(logits.At(i)->At(v)->number().value_or(0.0)));
      }
    }
    ExpectNear({got.begin(), got.begin() + static_cast<ptrdiff_t>(expected.size())}, expected,
               5e-4);
    for (size_t i = 0; i < greedy.size(); ++i) {
      const auto row = got.begin() + static_cast<ptrdiff_t>(i * n_vocab);
      EXPECT_EQ(std::max_element(row, row + n_vocab) - row, greedy[i]) << i;
    }
  }
}

TEST_P(TransformersTest, TextsAreTheSameTokens) {
  const auto text = ReadSmallFile(GoldenFolder() + GetParam() + ".json", 16 * kMiB);
  ASSERT_TRUE(text);
  const auto golden = Json::Parse(*text);
  const auto vocab = Vocab::Load(Convert(std::string(golden->Find("model")->text().value_or(""))));
  ASSERT_TRUE(vocab) << vocab.error().message;
  const JsonView texts = *golden->Find("texts");
  ASSERT_GE(texts.size(), 10U);
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string one = texts.At(i)->Find("text")->text().value_or("?");
    std::vector<Token> expected = Tokens(*texts.At(i)->Find("ids"));
    expected.push_back(0);  // the target begins
    const auto tokens = vocab->Tokenize(one, /*add_special=*/true, /*parse_special=*/true);
    ASSERT_TRUE(tokens) << tokens.error().message;
    EXPECT_EQ(*tokens, expected) << one;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TransformersTest, ::testing::Values("tied", "untied", "capacity"),
                         [](const auto& test) { return test.param; });

// A capacity counts a source's rows in order; what overflows is the residual alone.
TEST_F(EncoderTest, CapacityIsThatOfPlainLoops) {
  const std::string path = WriteTinyModel(folder_.path(), Tiny());
  const PlainSwitch plain(path);
  const auto source = Source(60);
  const auto target = Target(5);
  const auto unlimited = plain.Logits(source, target);
  for (const uint32_t capacity : {1U, 6U}) {
    const auto engine = Open(path, {.capacity = capacity});
    ASSERT_NE(engine, nullptr);
    const auto limited = plain.Logits(source, target, capacity);
    ExpectNear(Evaluate(*engine, source, target, 1), limited, kTolerance);
    EXPECT_NE(limited, unlimited);
  }
  // The model's config says 64, and no expert gets so many of 60.
  const auto by_config = Open(path, {.capacity = kConfigCapacity});
  ASSERT_NE(by_config, nullptr);
  ExpectNear(Evaluate(*by_config, source, target, 1), unlimited, kTolerance);
}

TEST_F(EncoderTest, SameBitsForEveryBudgetReaderAndStep) {
  for (const std::string type : {"F32", "Q8_0", "Q4_0"}) {
    const std::string path = WriteTinyModel(folder_.path(), Tiny(true, type));
    const auto source = Source(50);
    const auto target = Target(12);
    const auto whole = Open(path, {.kv_type = KvType::kF16});
    ASSERT_NE(whole, nullptr);
    const std::vector<float> expected = Evaluate(*whole, source, target, 1);
    ExpectSame(Evaluate(*whole, source, target, 5), expected, "five tokens of the target at once");
    for (const char* reader : {"uring", "pread"}) {
      for (const double percent : {4.0, 25.0, 60.0}) {
        const auto engine =
            Open(path, {.percent = percent, .reader = reader, .kv_type = KvType::kF16});
        ASSERT_NE(engine, nullptr);
        const std::string what = type + " " + reader + " " + std::to_string(percent);
        ExpectSame(Evaluate(*engine, source, target, 1), expected, what + " cold");
        ExpectSame(Evaluate(*engine, source, target, 1), expected, what + " warm");
      }
    }
    const auto one = Open(path, {.threads = 1, .kv_type = KvType::kF16});
    ASSERT_NE(one, nullptr);
    ExpectSame(Evaluate(*one, source, target, 1), expected, "one thread");
  }
}

// Sources and targets of several sequences in one batch.
TEST_F(EncoderTest, SequencesSideBySide) {
  const std::string path = WriteTinyModel(folder_.path(), Tiny());
  const auto engine = Open(path, {.sequences = 3, .chunk = 64});
  ASSERT_NE(engine, nullptr);
  std::vector<Sequence> sequences;
  std::vector<std::vector<Token>> texts;
  std::vector<std::vector<float>> expected;
  for (uint32_t i = 0; i < 3; ++i) {
    const auto source = Source(30 + i, i);
    const auto target = Target(4, 10 + i);
    expected.push_back(Evaluate(*engine, source, target, 4));
    texts.push_back(source);
    texts.back().append_range(target);
    sequences.push_back(engine->NewSequence());
  }
  Batch batch;
  for (uint32_t i = 0; i < 3; ++i) {
    for (uint32_t p = 0; p < texts[i].size(); ++p) {
      batch.rows.push_back({.sequence = sequences[i].id(),
                            .position = p,
                            .token = texts[i][p],
                            .kind = RowKind::kPrompt,
                            .wants_logits = p >= 30 + i});
    }
  }
  std::vector<std::vector<float>> got(3);
  const Status stepped = engine->Step(batch, [&](size_t row, std::span<const float> logits) {
    const SequenceId id = batch.rows[row].sequence;
    for (uint32_t i = 0; i < 3; ++i) {
      if (sequences[i].id() == id) got[i].append_range(logits);
    }
  });
  ASSERT_TRUE(stepped) << stepped.error().message;
  for (uint32_t i = 0; i < 3; ++i) ExpectSame(got[i], expected[i], std::to_string(i));
}

TEST_F(EncoderTest, APartOfASourceIsWorthNothing) {
  const auto engine = Open(WriteTinyModel(folder_.path(), Tiny()), {});
  ASSERT_NE(engine, nullptr);
  const auto source = Source(20);
  const auto target = Target(6);
  std::vector<Token> text = source;
  text.append_range(target);
  Sequence sequence = engine->NewSequence();
  ASSERT_TRUE(Step(*engine, sequence, text, 20));
  EXPECT_EQ(sequence.Reach(26), 26U);
  EXPECT_EQ(sequence.Reach(21), 21U);
  EXPECT_EQ(sequence.Reach(20), 20U);
  EXPECT_EQ(sequence.Reach(19), 0U);
  // Back to the source, and to another target; a fork goes on with its own.
  Sequence fork = sequence.Fork();
  sequence.CutBack(20);
  const auto other = Target(3, 77);
  const auto again = Step(*engine, sequence, other, 20);
  ASSERT_TRUE(again) << again.error().message;
  ExpectSame(*again, Evaluate(*engine, source, other, 3), "another target");
  const Token more = 9;
  const auto forked = Step(*engine, fork, {&more, 1}, 20, RowKind::kDecode);
  ASSERT_TRUE(forked) << forked.error().message;
  std::vector<Token> longer = target;
  longer.push_back(more);
  const auto whole = Evaluate(*engine, source, longer, 7);
  ExpectSame(*forked, {whole.end() - kVocab, whole.end()}, "fork");
}

TEST_F(EncoderTest, WhatIsNoSourceIsRefused) {
  const auto engine = Open(WriteTinyModel(folder_.path(), Tiny()), {.chunk = 32});
  ASSERT_NE(engine, nullptr);
  const auto refuse = [&](const Batch& batch, const std::string& part) {
    const Status status = engine->Step(batch);
    ASSERT_FALSE(status) << part;
    EXPECT_EQ(status.error().code, Errc::kInvalidRequest);
    EXPECT_TRUE(status.error().message.contains(part)) << status.error().message;
  };
  const Sequence one = engine->NewSequence();
  const Sequence two = engine->NewSequence();
  const auto rows = [](const Sequence& of, const std::vector<Token>& tokens) {
    Batch batch;
    for (size_t i = 0; i < tokens.size(); ++i) {
      batch.rows.push_back({.sequence = of.id(),
                            .position = static_cast<uint32_t>(i),
                            .token = tokens[i],
                            .kind = RowKind::kPrompt});
    }
    return batch;
  };
  refuse(rows(one, {5, 6, 7}), "must be in one step and end with token 1");
  refuse(rows(one, Source(33)), "the encoder takes 32 tokens at a time");
  Batch logits = rows(one, Source(5));
  logits.rows[2].wants_logits = true;
  refuse(logits, "rows of a source give no logits");
  Batch mixed = rows(one, Source(5));
  const Batch other = rows(two, Source(5));
  mixed.rows.insert(mixed.rows.begin() + 2, other.rows.begin(), other.rows.end());
  refuse(mixed, "must be in one step");
  EXPECT_EQ(one.position(), 0U);
  const auto good = Step(*engine, one, Source(32), 32);
  EXPECT_TRUE(good) << good.error().message;
}

// Saved with its source, and goes on with the same bits.
TEST_F(EncoderTest, ASavedSequenceGoesOn) {
  const auto engine = Open(WriteTinyModel(folder_.path(), Tiny()), {});
  ASSERT_NE(engine, nullptr);
  const auto source = Source(25);
  const auto target = Target(8);
  const std::vector<float> expected = Evaluate(*engine, source, target, 8);
  const Sequence sequence = engine->NewSequence();
  std::vector<Token> begun = source;
  begun.append_range(std::span(target).first(5));
  ASSERT_TRUE(Step(*engine, sequence, begun, 25));
  const std::string file = folder_.path() / "saved";
  ASSERT_TRUE(engine->SaveSequence(sequence, "", file));
  const auto restored = engine->RestoreSequence(file);
  ASSERT_TRUE(restored) << restored.error().message;
  const auto rest =
      Step(*engine, restored->sequence, std::span(target).subspan(5), 25, RowKind::kPrompt);
  ASSERT_TRUE(rest) << rest.error().message;
  ExpectSame(*rest, {expected.end() - static_cast<ptrdiff_t>(3 * kVocab), expected.end()}, "saved");
}

// Low copies of experts of both stacks.
TEST_F(EncoderTest, LowCopiesAreTaken) {
  const std::string path = WriteTinyModel(folder_.path(), Tiny(true, "Q8_0"));
  const std::string low = folder_.path() / "low.gguf";
  const auto types = ParseLowTypes("q4_0");
  ASSERT_TRUE(types);
  const auto written = WriteLowCopies({.model = path, .types = *types, .path = low});
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(written->layers, 4U);
  EngineOptions options;
  options.low = low;
  options.cache = CacheSize{.percent = 40};
  const auto engine = NativeEngine::Open(path, options);
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_FALSE(Evaluate(**engine, Source(20), Target(4), 1).empty());
}

// What `eval` reports, against the engine's own logits of the same sources and targets.
TEST_F(EncoderTest, LossIsThatOfTheTargetsTokens) {
  const std::string model = folder_.File("golden.gguf");
  ASSERT_TRUE(
      ConvertFolder({.folder = MOESTRO_SOURCE_DIR "/tests/goldens/switch/tied", .path = model}));
  std::string text;
  for (int i = 0; i < 40; ++i) text += "The dog and the cat ran down to the old river.\n";
  const std::string path = folder_.File("text.txt");
  std::ofstream(path) << text;
  EngineOptions options;
  options.threads = 2;
  options.ctx = 200;
  options.kv_type = KvType::kF32;  // as Open() has it
  auto evaluation =
      Evaluation::Prepare({.model = model, .engine = options, .text = {.paths = {path}}});
  ASSERT_TRUE(evaluation) << evaluation.error().message;
  const auto result = evaluation->Run(options);
  ASSERT_TRUE(result) << result.error().message;

  const auto engine = Open(model, {});
  const auto vocab = Vocab::Load(model);
  ASSERT_TRUE(vocab);
  std::vector<Token> tokens = *vocab->Tokenize(text, false, false);
  const auto with = FindSpanTokens(*vocab, *engine->spec().encoder);
  ASSERT_TRUE(with) << with.error().message;
  EXPECT_EQ(with->sentinels.size(), 100U);
  const SpanText spans = CutSpans(tokens, *with, {.source = 512, .sequence = 200});
  ASSERT_GT(spans.windows.size(), 2U);
  double loss = 0.0;
  uint64_t n = 0;
  for (const SpanWindow& window : spans.windows) {
    const auto all = std::span(spans.tokens).subspan(window.begin, window.length);
    const std::vector<Token> source(all.begin(),
                                    all.begin() + static_cast<ptrdiff_t>(window.n_source));
    const std::vector<Token> target(all.begin() + static_cast<ptrdiff_t>(window.n_source),
                                    all.end() - 1);
    const std::vector<float> logits = Evaluate(*engine, source, target, 1);
    const size_t n_vocab = engine->spec().n_vocab;
    ASSERT_EQ(logits.size(), target.size() * n_vocab);
    std::vector<float> row(n_vocab);
    for (size_t i = 0; i < target.size(); ++i) {
      LogSoftmax(std::span(logits).subspan(i * n_vocab, n_vocab), row);
      loss -= double{row[static_cast<size_t>(all[window.n_source + i + 1])]};
      ++n;
    }
  }
  EXPECT_EQ(result->figures.tokens, n);
  EXPECT_NEAR(std::log(result->figures.perplexity.value), loss / static_cast<double>(n), 1e-9);
}

TEST_F(EncoderTest, CapacityIsOfEncodersAlone) {
  EngineOptions options;
  options.capacity = 4;
  const auto engine =
      NativeEngine::Open(WriteTinyModel(folder_.path(), {.arch = "olmoe"}), options);
  ASSERT_FALSE(engine);
  EXPECT_TRUE(engine.error().message.contains("--capacity")) << engine.error().message;
}

}  // namespace
}  // namespace moestro
