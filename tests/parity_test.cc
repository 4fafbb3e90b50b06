// SPDX-License-Identifier: MIT
// Moestro and libllama on the same file in the same process: same greedy tokens, logits within a
// tolerance, for every architecture and several quantisations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "tests/support/llama_reference.h"
#include "tests/support/one_sequence.h"
#include "tests/support/prompts.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace moestro {
namespace {

constexpr size_t kPrompt = 40;
constexpr size_t kGenerated = 64;
constexpr uint32_t kContext = 256;

// Shares of the largest logit.
//
// With dense weights in GGUF layout and without ggml's tiled product (which keeps activations in
// F32 for large batches of K-quants) both sides round activations alike and add in the same order
// within a row: most cases agree to the last bit. What differs is the router's softmax and silu by
// a unit in the last place, and where that meets a rounding border of an 8-bit activation, one
// value of a row moves by a step of 1/127: 1/(127 sqrt(256)) = 5e-4 of a product. Passed through up
// to four layers of random weights, which damp nothing, that grows to about one percent.
constexpr double kSameRounding = 2e-2;
// Repacked layouts round all activations otherwise, so that every product is off by about
// 0.3/127 = 0.25 %: three percent after up to 28 products. A token whose last chosen expert and
// first rejected one are closer than that may choose another expert; hence the share of tokens.
constexpr double kOtherRounding = 3e-2;
constexpr double kShareOfTokens = 0.9;
// With the same rounding such ties within a unit in the last place are rare: about one token in a
// thousand over all these models.
constexpr double kShareOfTokensSameRounding = 0.98;

double LargestDifference(std::span<const float> a, std::span<const float> b) {
  double size = 0.0;
  double difference = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    size = std::max(size, std::abs(static_cast<double>(b[i])));
    difference = std::max(difference, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return difference / size;
}

std::unique_ptr<OneSequence> OpenEngine(const std::string& path, EngineOptions options = {}) {
  options.ctx = kContext;
  options.threads = 2;
  auto engine = OneSequence::Open(path, options);
  if (!engine) {
    ADD_FAILURE() << engine.error().message;
    return nullptr;
  }
  return *std::move(engine);
}

// The prompt's logits of both engines, then those of greedy steps, the reference choosing.
class Race {
 public:
  Race(const TinySpec& spec, bool repack) {
    const std::string path = WriteTinyModel(folder_.path(), spec);
    EngineOptions options;
    options.repack = repack;
    engine_ = OpenEngine(path, options);
    reference_ = std::make_unique<LlamaReference>(path, kContext, kContext);
  }

  void Run() {
    ASSERT_NE(engine_, nullptr);
    const uint32_t n_vocab = reference_->n_vocab();
    ASSERT_EQ(engine_->spec().n_vocab, n_vocab);
    const std::vector<Token> prompt = RandomTokens(kPrompt, n_vocab, 7);
    const auto ours = engine_->AppendAll(prompt);
    ASSERT_TRUE(ours.has_value()) << ours.error().message;
    const std::vector<float> theirs = reference_->Append(prompt);
    for (size_t t = 0; t < kPrompt; ++t) {
      Compare(std::span(*ours).subspan(t * n_vocab, n_vocab),
              std::span(theirs).subspan(t * n_vocab, n_vocab));
    }
    Token next = Greedy(std::span(theirs).last(n_vocab));
    for (size_t i = 0; i < kGenerated; ++i) {
      const auto mine = engine_->Append({&next, 1});
      ASSERT_TRUE(mine.has_value()) << mine.error().message;
      const std::vector<float> other = reference_->Append({&next, 1});
      Compare(*mine, other);
      next = Greedy(other);
    }
  }

  double largest() const { return *std::ranges::max_element(differences_); }
  double share_within(double tolerance) const {
    const auto within =
        std::ranges::count_if(differences_, [&](double d) { return d < tolerance; });
    return static_cast<double>(within) / static_cast<double>(differences_.size());
  }
  size_t other_choices() const { return other_choices_; }

 private:
  void Compare(std::span<const float> ours, std::span<const float> theirs) {
    differences_.push_back(LargestDifference(ours, theirs));
    if (Greedy(ours) != Greedy(theirs)) ++other_choices_;
  }

  TempFolder folder_;
  std::unique_ptr<OneSequence> engine_;
  std::unique_ptr<LlamaReference> reference_;
  std::vector<double> differences_;  // per token
  size_t other_choices_ = 0;         // tokens where the largest logit is another one
};

struct Case {
  const char* name;
  TinySpec spec;
};

class Parity : public ::testing::TestWithParam<Case> {};

TEST_P(Parity, SameTokensAndLogits) {
  Race race(GetParam().spec, false);
  race.Run();
  if (HasFatalFailure()) return;
  EXPECT_GE(race.share_within(kSameRounding), kShareOfTokensSameRounding)
      << "largest " << race.largest();
  EXPECT_EQ(race.other_choices(), 0U);
}

TEST_P(Parity, RepackedWeightsStayClose) {
  Race race(GetParam().spec, true);
  race.Run();
  if (HasFatalFailure()) return;
  EXPECT_GE(race.share_within(kOtherRounding), kShareOfTokens) << "largest " << race.largest();
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string& arch : TinyArchs()) {
    for (const char* type : {"F32", "F16", "Q8_0", "Q4_0", "Q4_K_M"}) {
      cases.push_back({"families", {.arch = arch, .type = type}});
    }
  }
  for (const char* type :
       {"BF16", "Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4"}) {
    cases.push_back({"types", {.arch = "qwen3moe", .type = type, .ff = 256}});
  }
  cases.push_back({"split", {.arch = "qwen3moe", .type = "Q4_0", .shards = 3}});
  cases.push_back({"tied", {.arch = "llama", .type = "Q8_0", .is_tied = true}});
  cases.push_back({"tied", {.arch = "qwen3moe", .type = "Q4_K_M", .is_tied = true}});
  cases.push_back(
      {"odd",
       {.arch = "qwen2moe", .type = "Q4_0", .layers = 4, .experts = 6, .used = 4, .ff = 352}});
  cases.push_back({"longrope", {.arch = "phimoe", .type = "Q8_0", .orig_context = 300}});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, Parity, ::testing::ValuesIn(Cases()), [](const auto& one) {
  const Case& c = one.param;
  return std::string(c.name) + "_" + c.spec.arch + "_" + c.spec.type + "_" +
         std::to_string(one.index);
});

// How a prompt is cut into chunks may change the last bits of attention (other tile sizes), nothing
// else: experts are computed token by token alike.
TEST(Prefill, ChunksGiveTheSameLogitsAsTheWhole) {
  const TempFolder folder;
  for (const char* arch : {"llama", "qwen2moe", "qwen3moe"}) {
    const std::string path = WriteTinyModel(folder.path(), {.arch = arch, .type = "Q8_0"});
    std::vector<std::vector<float>> logits;
    for (const uint32_t chunk : {256U, 16U, 7U}) {
      EngineOptions options;
      options.chunk = chunk;
      options.repack = false;
      const auto engine = OpenEngine(path, options);
      ASSERT_NE(engine, nullptr);
      const auto all = engine->AppendAll(RandomTokens(kPrompt, 512, 7));
      ASSERT_TRUE(all.has_value()) << all.error().message;
      logits.push_back(*all);
    }
    EXPECT_LT(LargestDifference(logits[1], logits[0]), kSameRounding) << arch;
    EXPECT_LT(LargestDifference(logits[2], logits[0]), kSameRounding) << arch;
  }
}

TEST(Prefill, TokenByTokenGivesTheSameLogitsAsTheWhole) {
  const TempFolder folder;
  const std::string path = WriteTinyModel(folder.path(), {.arch = "olmoe", .type = "Q4_0"});
  const std::vector<Token> prompt = RandomTokens(20, 512, 9);
  EngineOptions options;
  options.repack = false;
  const auto whole = OpenEngine(path, options);
  const auto steps = OpenEngine(path, options);
  const auto expected = whole->AppendAll(prompt);
  ASSERT_TRUE(expected.has_value());
  for (size_t i = 0; i < prompt.size(); ++i) {
    const auto logits = steps->Append(std::span(prompt).subspan(i, 1));
    ASSERT_TRUE(logits.has_value());
    EXPECT_LT(LargestDifference(*logits, std::span(*expected).subspan(i * 512, 512)),
              kSameRounding);
  }
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  // Read by ggml's CPU backend when it is loaded: see kSameRounding.
  setenv("GGML_CPU_TILED_MM", "0", 1);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
