// SPDX-License-Identifier: MIT
// A model whose weights are NaN, and one that changes while it is used: a step fails and says why.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "model/model_file.h"
#include "tests/support/damage_testing.h"
#include "tests/support/one_sequence_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

class DamagedModel : public ::testing::Test {
 protected:
  std::string Write(const std::string& arch = "qwen3moe") const {
    return WriteTinyModel(folder_.path(), {.arch = arch, .type = "F16", .layers = 4});
  }
  EngineOptions Options() const {
    EngineOptions options;
    options.ctx = 128;
    options.threads = 1;
    options.cache = CacheSize{.percent = 50.0};
    options.clock = [this] { return now_; };
    return options;
  }
  std::unique_ptr<OneSequence> Open(const std::string& path) const {
    auto engine = OneSequence::Open(path, Options());
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }
  // A prompt and then a token of it: what each fails with; empty: it does not.
  static std::vector<std::string> Failures(OneSequence& engine) {
    std::vector<std::string> failures;
    for (const uint32_t n : {5U, 1U}) {
      const uint32_t before = engine.position();
      const auto logits = engine.Append(SeededTokens(n, 512, n));
      failures.push_back(logits ? "" : logits.error().message);
      if (logits) continue;
      EXPECT_EQ(logits.error().code, Errc::kInvalidFile);
      EXPECT_EQ(engine.position(), before);
    }
    return failures;
  }
  void ExpectsNamed(const std::string& path, const std::string& where) const {
    const auto engine = Open(path);
    ASSERT_NE(engine, nullptr);
    for (const std::string& failure : Failures(*engine)) {
      EXPECT_TRUE(failure.contains(where)) << "'" << failure << "' is without '" << where << "'";
      EXPECT_TRUE(failure.contains("NaN")) << failure;
    }
  }

  TempFolder folder_;
  double now_ = 10.0;
};

TEST_F(DamagedModel, NanIsAnErrorThatNamesTheLayer) {
  struct Case {
    std::string tensor;
    std::string where;
  };
  for (const auto& [tensor, where] : std::vector<Case>{
           {"token_embd.weight", "the embedding"},
           {"blk.0.attn_v.weight", "layer 0 "},
           {"blk.1.attn_q.weight", "layer 1 "},
           {"blk.1.attn_k.weight", "layer 1 "},
           {"blk.2.ffn_gate_inp.weight", "layer 2 "},
           {"blk.1.ffn_down_exps.weight", "layer 1's experts"},
           {"blk.3.ffn_up_exps.weight", "the last layer's experts or the output matrix"},
           {"output.weight", "the last layer's experts or the output matrix"}}) {
    SCOPED_TRACE(tensor);
    const std::string path = Write();
    FillWithNan(path, tensor);
    ExpectsNamed(path, where);
  }
}

TEST_F(DamagedModel, NanOfALayerWithoutExpertsIsNamed) {
  const std::string path = Write("dots1");
  FillWithNan(path, "blk.0.ffn_up.weight");
  ExpectsNamed(path, "layer 0 ");
}

// A squared ReLU must not make 0 of it.
TEST_F(DamagedModel, NanOfALayerOfExpertsAloneIsNamed) {
  for (const char* tensor :
       {"blk.1.ffn_up_shexp.weight", "blk.1.ffn_up_exps.weight", "blk.1.ffn_latent_up.weight"}) {
    SCOPED_TRACE(tensor);
    const std::string path = Write("nemotron_h_moe");
    FillWithNan(path, tensor);
    ExpectsNamed(path, "layer 2, or layer 1's experts,");
  }
}

// A cap would make a number of them.
TEST_F(DamagedModel, InfiniteLogitsBehindACapAreFound) {
  const std::string path = Write("gemma4");
  FillWithNan(path, "output.weight");
  ExpectsNamed(path, "the last layer's experts or the output matrix");
}

// No result of a graph tells of these: a NaN would choose experts, or leave out attention, without
// a word.
TEST_F(DamagedModel, NanOfWhatNoResultTellsIsFoundWhenItIsLoaded) {
  for (const auto& [arch, tensor] : {std::pair{"gpt-oss", "blk.2.ffn_gate_inp.bias"},
                                     {"gpt-oss", "blk.2.attn_sinks.weight"},
                                     {"gpt-oss", "blk.2.attn_q.bias"},
                                     {"qwen2moe", "blk.1.attn_k.bias"},
                                     {"qwen3moe", "blk.2.attn_norm.weight"},
                                     {"qwen3moe", "output_norm.weight"},
                                     {"qwen35moe", "blk.2.ssm_a"},
                                     {"qwen35moe", "blk.2.ssm_dt.bias"},
                                     {"qwen3next", "blk.2.ssm_conv1d.weight"},
                                     {"qwen3next", "blk.2.ssm_norm.weight"},
                                     {"granitehybrid", "blk.2.ssm_d"},
                                     {"granitehybrid", "blk.2.ssm_conv1d.bias"},
                                     {"lfm2moe", "blk.2.shortconv.conv.weight"},
                                     {"nemotron_h_moe", "blk.0.ssm_d"},
                                     {"nemotron_h_moe", "blk.1.exp_probs_b.bias"},
                                     {"dots1", "blk.2.exp_probs_b.bias"},
                                     {"minimax-m3", "blk.2.exp_probs_b.bias"},
                                     {"minimax-m3", "blk.2.indexer.k_norm.weight"},
                                     {"deepseek4", "blk.2.attn_sinks.weight"},
                                     {"deepseek4", "blk.1.attn_compressor_norm.weight"},
                                     {"deepseek4", "blk.2.hc_ffn_base.weight"}}) {
    const std::string path = Write(arch);
    FillWithNan(path, tensor);
    const auto engine = OneSequence::Open(path, Options());
    ASSERT_FALSE(engine) << arch;
    EXPECT_EQ(engine.error().code, Errc::kInvalidFile);
    EXPECT_TRUE(engine.error().message.contains(tensor)) << engine.error().message;
  }
}

// A table that names no expert, one beyond the last, or an expert twice; in the first row, in the
// last one and in between.
TEST_F(DamagedModel, ATableOfTokensExpertsIsCheckedWhenItIsLoaded) {
  struct Case {
    size_t token;
    size_t place;
    int32_t expert;
  };
  constexpr int32_t kExperts = 8;
  constexpr size_t kVocab = 512;
  const std::string tensor = "blk.0.ffn_gate_tid2eid.weight";
  for (const auto& [token, place, expert] : {Case{0, 0, -1},
                                             {7, 1, kExperts},
                                             {kVocab - 1, 1, INT32_MIN},
                                             {kVocab - 1, 0, INT32_MAX},
                                             {200, 0, 0x10000}}) {
    const std::string path = Write("deepseek4");
    WriteNumbers(path, tensor, token * 2 + place, {expert});
    const auto engine = OneSequence::Open(path, Options());
    ASSERT_FALSE(engine) << expert;
    EXPECT_EQ(engine.error().code, Errc::kInvalidFile);
    EXPECT_TRUE(engine.error().message.contains(
        Format("'{}' names expert {} of {} for token {}", tensor, expert, kExperts, token)))
        << engine.error().message;
  }
  const std::string path = Write("deepseek4");
  WriteNumbers(path, tensor, 300 * 2, {5, 5});
  const auto twice = OneSequence::Open(path, Options());
  ASSERT_FALSE(twice);
  EXPECT_TRUE(twice.error().message.contains("for token 300, or names it twice"))
      << twice.error().message;
  WriteNumbers(path, tensor, 300 * 2, {5, 0});
  EXPECT_TRUE(OneSequence::Open(path, Options()));
}

TEST_F(DamagedModel, AChangeEndsTheRunWithinASecond) {
  const std::string path = Write();
  const auto engine = Open(path);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(Failures(*engine), (std::vector<std::string>{"", ""}));
  MakeNewer(path);
  now_ += 1.0;
  for (const std::string& failure : Failures(*engine)) {
    EXPECT_TRUE(failure.contains(path)) << failure;
    EXPECT_TRUE(failure.contains("written")) << failure;
  }
  ASSERT_TRUE(engine->engine().closed());
  // What was read in between is not known to be of one file.
  Write();
  for (const std::string& failure : Failures(*engine)) EXPECT_TRUE(failure.contains(path));
}

TEST_F(DamagedModel, AChangeOfTheLowCopiesEndsTheRun) {
  const std::string path = Write();
  const std::string low =
      WriteTinyModel(folder_.path(), {.arch = "qwen3moe", .type = "Q4_0", .layers = 4});
  EngineOptions options = Options();
  options.low = low;
  options.lossy = {.t1 = 0.5, .t2 = 1.0};
  const auto engine = OneSequence::Open(path, options);
  ASSERT_TRUE(engine) << engine.error().message;
  MakeNewer(low);
  now_ += 1.0;
  for (const std::string& failure : Failures(**engine)) EXPECT_TRUE(failure.contains(low));
}

TEST_F(DamagedModel, AFileThatIsReplacedBetweenHeaderAndWeightsIsRefused) {
  const std::string path = Write();
  auto model = ModelFile::Open(path);
  ASSERT_TRUE(model) << model.error().message;
  std::filesystem::copy(path, path + ".new");
  std::filesystem::rename(path + ".new", path);
  const auto engine = NativeEngine::Open(*std::move(model), Options());
  ASSERT_FALSE(engine);
  EXPECT_TRUE(engine.error().message.contains("another file")) << engine.error().message;
}

}  // namespace
}  // namespace moestro
