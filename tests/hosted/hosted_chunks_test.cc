// SPDX-License-Identifier: MIT
// The hosted engine's bits follow from model, --ctx, --chunk and --threads, also beyond 256
// positions, where libllama's attention divides a row's keys among the threads. A budget changes
// the chunk only with a word.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "engine/append.h"
#include "load/open_engine.h"
#include "tests/hosted/plain_llama_testing.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/product_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kChunksContext = 768;
constexpr size_t kChunksPrompt = 264;

std::vector<Token> ChunksTokens(size_t n, uint32_t seed) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < n; ++i) tokens.push_back(static_cast<Token>((i * 53 + seed * 17) % 256));
  return tokens;
}

EngineOptions ChunksOptions(double percent, uint32_t chunk, uint32_t threads) {
  EngineOptions options;
  options.engine = "hosted";
  options.cache = CacheSize{.percent = percent};
  options.threads = threads;
  options.ctx = kChunksContext;
  options.chunk = chunk;
  options.repack = false;  // libllama's own products
  return options;
}

// Of the prompt's last row and of each row of the text behind it.
std::vector<float> LogitsBehind(Engine& engine, std::span<const Token> prompt,
                                std::span<const Token> text) {
  Sequence sequence = engine.NewSequence();
  const auto last = Append(engine, sequence, prompt);
  EXPECT_TRUE(last) << last.error().message;
  if (!last) return {};
  std::vector<float> all(last->begin(), last->end());
  for (const Token token : text) {
    const auto row = Append(engine, sequence, {&token, 1});
    EXPECT_TRUE(row) << row.error().message;
    if (!row) return {};
    all.insert(all.end(), row->begin(), row->end());
  }
  return all;
}

std::vector<float> PlainLogitsBehind(const std::string& path, uint32_t chunk, uint32_t threads,
                                     std::span<const Token> prompt, std::span<const Token> text) {
  PlainLlama plain(path, kChunksContext, threads);
  std::vector<float> rows;
  size_t in_chunk = 0;
  for (size_t first = 0; first < prompt.size(); first += chunk) {
    in_chunk = std::min<size_t>(chunk, prompt.size() - first);
    rows = plain.Append(prompt.subspan(first, in_chunk));
  }
  std::vector<float> all(rows.end() - static_cast<std::ptrdiff_t>(rows.size() / in_chunk),
                         rows.end());
  for (const Token token : text) {
    const std::vector<float> row = plain.Append({&token, 1});
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

class HostedChunks : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    path_ = WriteZooModel(folder_.path(), GetParam(), {.context = kChunksContext});
  }
  std::unique_ptr<Engine> Open(const EngineOptions& options) const {
    auto engine = OpenEngine(path_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }
  TempFolder folder_;
  std::string path_;
};

TEST_P(HostedChunks, BitsAreThoseOfTheChunkAndTheThreadsInEveryBudget) {
  const std::vector<Token> prompt = ChunksTokens(kChunksPrompt, 1);
  const std::vector<Token> text = ChunksTokens(6, 3);
  for (const uint32_t threads : {1U, 2U}) {
    for (const uint32_t chunk : {48U, 512U}) {
      const auto expected = PlainLogitsBehind(path_, chunk, threads, prompt, text);
      for (const double percent : {100.0, 60.0}) {
        const auto engine = Open(ChunksOptions(percent, chunk, threads));
        ASSERT_NE(engine, nullptr);
        EXPECT_EQ(engine->chunk(), chunk);
        EXPECT_EQ(LogitsBehind(*engine, prompt, text), expected)
            << percent << " %, chunks of " << chunk << ", threads " << threads;
      }
    }
  }
}

// No row's keys are divided among threads yet.
TEST_P(HostedChunks, UpTo256PositionsThreadsChangeNothing) {
  const std::vector<Token> prompt = ChunksTokens(240, 1);
  const std::vector<Token> text = ChunksTokens(8, 3);
  for (const bool repack : {false, true}) {
    EngineOptions options = ChunksOptions(60.0, 0, 1);
    options.repack = repack;
    const auto one = Open(options);
    options.threads = 2;
    const auto two = Open(options);
    ASSERT_TRUE(one && two);
    EXPECT_EQ(LogitsBehind(*one, prompt, text), LogitsBehind(*two, prompt, text)) << repack;
  }
}

// The smallest cache has K slots: room for the experts of one row.
TEST_P(HostedChunks, AChunkThatIsAskedForIsComputedOrRefused) {
  const auto refused = OpenEngine(path_, ChunksOptions(9.0, 64, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
  EXPECT_TRUE(refused.error().message.contains("--chunk 64")) << refused.error().message;
  const auto one = Open(ChunksOptions(9.0, 1, 1));
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->chunk(), 1U);
}

TEST_P(HostedChunks, ABudgetThatChangesTheChunkSaysSo) {
  testing::internal::CaptureStderr();
  const auto whole = Open(ChunksOptions(100.0, 0, 1));
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(whole->chunk(), 512U);
  EXPECT_FALSE(testing::internal::GetCapturedStderr().contains("--chunk"));

  testing::internal::CaptureStderr();
  const auto small = Open(ChunksOptions(9.0, 0, 1));
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_NE(small, nullptr);
  EXPECT_LT(small->chunk(), 512U);
  EXPECT_TRUE(said.contains("--chunk " + std::to_string(small->chunk()))) << said;
  const std::vector<Token> prompt = ChunksTokens(kChunksPrompt, 1);
  const auto same = Open(ChunksOptions(100.0, small->chunk(), 1));
  ASSERT_NE(same, nullptr);
  EXPECT_EQ(LogitsBehind(*small, prompt, {}), LogitsBehind(*same, prompt, {}));
}

INSTANTIATE_TEST_SUITE_P(Kinds, HostedChunks,
                         testing::Values("qwen3moe", "gpt-oss", "deepseek2", "lfm2moe"),
                         [](const auto& arch) { return ZooCaseName(arch.param, 0); });

// A text beyond each window, block, pool and choice of positions of the tiny models.
class HostedLongText : public HostedChunks {};

TEST_P(HostedLongText, HasTheBitsOfPlainLibllama) {
  const std::vector<Token> prompt = ChunksTokens(kChunksPrompt, 1);
  const std::vector<Token> text = ChunksTokens(8, 3);
  const auto engine = Open(ChunksOptions(60.0, 48, 1));
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(LogitsBehind(*engine, prompt, text), PlainLogitsBehind(path_, 48, 1, prompt, text));
  EXPECT_GT(engine->stats().prefill.misses, 0U);
}

// To the end of an earlier chunk, so that the rows before go through the layers in the same chunks.
TEST_P(HostedLongText, GoesBackToAnEarlierPosition) {
  const std::vector<Token> prompt = ChunksTokens(kChunksPrompt, 1);
  const std::vector<Token> other = ChunksTokens(30, 5);
  const auto engine = Open(ChunksOptions(100.0, 48, 1));
  ASSERT_NE(engine, nullptr);
  constexpr uint32_t kPosition = 192;
  Sequence sequence = engine->NewSequence();
  ASSERT_TRUE(Append(*engine, sequence, std::span(prompt).first(kPosition)));
  sequence.Keep();
  ASSERT_TRUE(Append(*engine, sequence, std::span(prompt).subspan(kPosition)));
  ASSERT_TRUE(CutBackTo(*engine, sequence, kPosition));
  const auto got = AppendAll(*engine, sequence, other);
  ASSERT_TRUE(got) << got.error().message;
  const auto fresh = Open(ChunksOptions(100.0, 48, 1));
  ASSERT_NE(fresh, nullptr);
  Sequence alone = fresh->NewSequence();
  ASSERT_TRUE(Append(*fresh, alone, std::span(prompt).first(kPosition)));
  const auto expected = AppendAll(*fresh, alone, other);
  ASSERT_TRUE(expected);
  EXPECT_EQ(*got, *expected);
}

// The cover has each kind of memory.
std::vector<std::string> LongTextsOfPart(uint32_t part) {
  return CellsOfPart(part, ZooArchs(),
                     [](const std::string& arch) { return Keys{ZooMemory(arch)}; });
}

MOESTRO_INSTANTIATE_PARTS(HostedLongText, LongTextsOfPart,
                          [](const auto& arch) { return ZooCaseName(arch.param, 0); });

// A model without a memory of earlier tokens cannot write: each token would see itself alone.
TEST(HostedMemoryless, ADiffusionModelIsRefusedWithTheReason) {
  const TempFolder folder;
  for (const std::string arch : {"llada-moe", "rnd1"}) {
    const std::string path = WriteZooModel(folder.path(), arch);
    for (const std::string engine : {"auto", "hosted"}) {
      const auto refused = OpenEngine(path, {.engine = engine, .threads = 1});
      ASSERT_FALSE(refused) << arch;
      EXPECT_EQ(refused.error().code, Errc::kUnsupported);
      EXPECT_TRUE(refused.error().message.contains("diffusion")) << refused.error().message;
      EXPECT_TRUE(refused.error().message.contains(path)) << refused.error().message;
      EXPECT_FALSE(PlanEngine(path, {.engine = engine, .threads = 1}));
    }
  }
}

// Rows that see later ones have other logits in one step than one by one.
TEST(HostedMemoryless, AModelThatLooksAheadIsRefusedWithTheReason) {
  const TempFolder folder;
  for (const std::string arch : {"qwen3moe", "deepseek2", "olmoe", "gpt-oss"}) {
    const std::string path = WriteZooModel(folder.path(), arch, {.is_causal = false});
    for (const std::string engine : {"native", "hosted"}) {
      const auto refused = OpenEngine(path, {.engine = engine, .threads = 1});
      ASSERT_FALSE(refused) << arch << " " << engine;
      EXPECT_TRUE(refused.error().message.contains("attention.causal")) << refused.error().message;
    }
  }
}

}  // namespace
}  // namespace moestro
