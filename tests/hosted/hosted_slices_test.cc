// SPDX-License-Identifier: MIT
// Experts of several pages, some of which they share with neighbours: the bits of plain libllama
// over budgets, readers and threads, with the bytes of absent experts at 0xFF.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/number.h"
#include "compute/host_memory.h"
#include "engine/append.h"
#include "load/open_engine.h"
#include "store/block_reader.h"
#include "tests/hosted/plain_llama_testing.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/poisoning_reader_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kSliceContext = 256;

std::vector<Token> SliceTokens(size_t n, uint32_t seed) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < n; ++i) tokens.push_back(static_cast<Token>((i * 37 + seed * 11) % 256));
  return tokens;
}

// Every seventh read is said to be done, and its bytes land elsewhere.
class SkippingReader final : public BlockReader {
 public:
  explicit SkippingReader(std::unique_ptr<BlockReader> inner) : inner_(std::move(inner)) {}

  uint64_t block() const override { return inner_->block(); }
  bool Submit(const BlockRead& read) override {
    BlockRead other = read;
    if (++reads_ % 7 == 0) other.to = elsewhere_.bytes().first(read.to.size());
    return inner_->Submit(other);
  }
  size_t Poll(std::span<BlockDone> out) override { return inner_->Poll(out); }
  size_t Wait(std::span<BlockDone> out) override { return inner_->Wait(out); }
  std::string description() const override { return "skipping"; }

 private:
  std::unique_ptr<BlockReader> inner_;
  HostMemory elsewhere_ = *HostMemory::Allocate(4 * kMiB);
  uint64_t reads_ = 0;
};

struct Slices {
  std::string arch;
  uint32_t expert_ff;
};

class HostedSlices : public testing::TestWithParam<Slices> {
 protected:
  void SetUp() override {
    path_ = WriteZooModel(folder_.path(), GetParam().arch, {.expert_ff = GetParam().expert_ff});
  }
  // Token by token, the same text several times: experts leave and come back.
  static std::vector<float> Write(Engine& engine, std::span<const Token> text) {
    std::vector<float> all;
    Sequence sequence = engine.NewSequence();
    for (const Token token : text) {
      const auto row = Append(engine, sequence, {&token, 1});
      EXPECT_TRUE(row) << row.error().message;
      if (row) all.insert(all.end(), row->begin(), row->end());
    }
    return all;
  }
  std::vector<float> Plain(std::span<const Token> text, uint32_t threads) const {
    PlainLlama plain(path_, kSliceContext, threads);
    std::vector<float> all;
    for (const Token token : text) all.append_range(plain.Append({&token, 1}));
    return all;
  }

  TempFolder folder_;
  std::string path_;
};

TEST_P(HostedSlices, GiveTheBitsOfPlainLibllama) {
  const std::vector<Token> text = SliceTokens(6, 3);
  for (const uint32_t threads : {1U, 2U}) {
    const std::vector<float> expected = Plain(text, threads);
    for (const char* reader : {"auto", "pread"}) {
      for (const double percent : {100.0, 60.0, 40.0, 26.0}) {
        if (threads > 1 && percent > 40.0) continue;  // nothing leaves
        EngineOptions options;
        options.engine = "hosted";
        options.cache = CacheSize{.percent = percent};
        options.threads = threads;
        options.ctx = kSliceContext;
        options.reader = reader;
        options.repack = false;  // libllama's own products
        options.wrap_reader = PoisoningReader::Wrap;
        const auto engine = OpenEngine(path_, options);
        ASSERT_TRUE(engine) << engine.error().message;
        for (int pass = 0; pass < 2; ++pass) {
          EXPECT_EQ(Write(**engine, text), expected)
              << percent << " % by " << reader << ", " << threads << " threads, pass " << pass;
        }
        if (percent < 50.0) {
          EXPECT_GT((*engine)->stats().decode.evictions, 0U);
        }
      }
    }
  }
}

// What the test above would say of an engine that leaves a read out.
TEST_P(HostedSlices, ASkippedReadShows) {
  const std::vector<Token> text = SliceTokens(6, 3);
  EngineOptions options;
  options.engine = "hosted";
  options.cache = CacheSize{.percent = 40.0};
  options.threads = 1;
  options.ctx = kSliceContext;
  options.repack = false;
  options.wrap_reader = [](std::unique_ptr<BlockReader> inner) {
    return PoisoningReader::Wrap(std::make_unique<SkippingReader>(std::move(inner)));
  };
  const auto engine = OpenEngine(path_, options);
  ASSERT_TRUE(engine) << engine.error().message;
  Sequence sequence = (*engine)->NewSequence();
  std::vector<float> all;
  for (const Token token : text) {
    const auto row = Append(**engine, sequence, {&token, 1});
    if (!row) return;  // NaN: it shows
    all.insert(all.end(), row->begin(), row->end());
  }
  EXPECT_NE(all, Plain(text, 1));
}

INSTANTIATE_TEST_SUITE_P(Shapes, HostedSlices,
                         testing::Values(Slices{"qwen3moe", 200}, Slices{"grovemoe", 168},
                                         Slices{"gpt-oss", 96}, Slices{"deepseek2", 136},
                                         Slices{"nemotron_h_moe", 120}),
                         [](const auto& shape) {
                           return ZooCaseName(shape.param.arch, shape.param.expert_ff);
                         });

}  // namespace
}  // namespace moestro
