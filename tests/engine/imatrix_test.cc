// SPDX-License-Identifier: MIT
// Importances from a running model: what experts are given, its sums, and what quantising makes of
// them.
#include "offline/record/imatrix.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/random_tokens.h"
#include "model/low_copies.h"
#include "offline/quantize.h"
#include "offline/record/imatrix_sums.h"
#include "tests/support/one_sequence_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

const std::string kDemo = MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf";

std::string Bytes(const GgufFile& file, const Extent& extent) {
  std::ifstream in(file.paths()[extent.file], std::ios::binary);
  in.seekg(static_cast<std::streamoff>(extent.offset));
  std::string bytes(extent.length, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(in.good());
  return bytes;
}

std::vector<float> Floats(const GgufFile& file, const ExpertMatrix& matrix, size_t expert) {
  const std::string bytes = Bytes(file, matrix.slices[expert]);
  std::vector<float> values(size_t{matrix.n_in} * matrix.n_out);
  if (matrix.types[expert] == GGML_TYPE_F32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else {
    ggml_get_type_traits(matrix.types[expert])
        ->to_float(bytes.data(), values.data(), static_cast<int64_t>(values.size()));
  }
  return values;
}

float Dot(const float* a, const float* b, size_t n) {
  return std::inner_product(a, a + n, b, 0.0F);
}

EngineOptions Threads(uint32_t threads) {
  EngineOptions options;
  options.threads = threads;
  options.ctx = 64;
  return options;
}

TEST(ExpertObserver, SeesWhatTheMatricesAreMultipliedWith) {
  const TempFolder folder;
  const std::string path = WriteTinyModel(folder.path(), {.type = "F32"});
  const auto model = ModelFile::Open(path);
  ASSERT_TRUE(model) << model.error().message;
  auto run = OneSequence::Open(path, Threads(2));
  ASSERT_TRUE(run) << run.error().message;
  const uint32_t n_embd = model->spec.n_embd;
  const uint32_t n_ff = model->spec.MostOf(&FeedForwardSpec::n_ff_expert);
  size_t layers = 0;
  (*run)->engine().SetExpertObserver([&](const SeenExperts& seen) {
    EXPECT_EQ(seen.plan.layer.value, layers % 2);
    const LayerExperts& experts = model->weights.layers[seen.plan.layer.value].experts;
    ++layers;
    ASSERT_EQ(seen.inputs.size(), size_t{seen.plan.n_rows} * n_embd);
    ASSERT_EQ(seen.products.size(), seen.plan.row_of.size() * n_ff);
    for (const PlannedExpert& expert : seen.plan.experts) {
      const auto gate = Floats(model->gguf, experts[Matrix::kGate], expert.key.expert.value);
      const auto up = Floats(model->gguf, experts[Matrix::kUp], expert.key.expert.value);
      for (uint32_t p = expert.first_pair; p < expert.first_pair + expert.n_pairs; ++p) {
        const float* x = seen.inputs.data() + size_t{seen.plan.row_of[p]} * n_embd;
        for (size_t f = 0; f < n_ff; f += 17) {
          const float g = Dot(&gate[f * n_embd], x, n_embd);
          const float wanted = g / (1 + std::exp(-g)) * Dot(&up[f * n_embd], x, n_embd);
          EXPECT_NEAR(seen.products[p * n_ff + f], wanted, 1e-3F);
        }
      }
    }
  });
  ASSERT_TRUE((*run)->Append(RandomTokens(20, 512, 1)));
  ASSERT_TRUE((*run)->Append(std::vector<Token>{5}));
  EXPECT_EQ(layers, 4U);
  (*run)->engine().SetExpertObserver({});
  ASSERT_TRUE((*run)->Append(std::vector<Token>{6}));
  EXPECT_EQ(layers, 4U);
}

TEST(ImatrixSums, DoNotDependOnHowTokensComeTogether) {
  const TempFolder folder;
  // A layer without experts, and experts that are always there.
  const std::string path = WriteTinyModel(folder.path(), {.arch = "dots1", .type = "F32"});
  const std::vector<Token> tokens = RandomTokens(24, 512, 3);
  std::vector<ImatrixSums> all;
  for (const size_t step : {24U, 5U, 1U}) {
    auto run = OneSequence::Open(path, Threads(1));
    ASSERT_TRUE(run) << run.error().message;
    ImatrixSums sums(ImatrixShape::Of((*run)->spec()));
    (*run)->engine().SetExpertObserver([&](const SeenExperts& seen) { sums.Add(seen); });
    for (size_t at = 0; at < tokens.size(); at += step) {
      ASSERT_TRUE(
          (*run)->Append(std::span(tokens).subspan(at, std::min(step, tokens.size() - at))));
    }
    const auto& counts = sums.layer(0).counts;
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), uint64_t{0}), 24U * 2);
    EXPECT_TRUE(sums.is_finite());
    all.push_back(std::move(sums));
  }
  for (size_t i = 1; i < all.size(); ++i) {
    const ImatrixSums::Layer& one = all[i].layer(0);
    const ImatrixSums::Layer& first = all[0].layer(0);
    EXPECT_EQ(one.counts, first.counts);
    for (size_t c = 0; c < first.inputs.size(); ++c) {
      EXPECT_NEAR(one.inputs[c], first.inputs[c], 1e-3 * (1 + first.inputs[c]));
    }
    for (size_t c = 0; c < first.products.size(); ++c) {
      EXPECT_NEAR(one.products[c], first.products[c], 1e-3 * (1 + first.products[c]));
    }
  }
}

class MakeImatrixTest : public ::testing::Test {
 protected:
  ImatrixOptions Options(const std::string& text) const {
    std::ofstream(folder_.File("text.txt")) << text;
    ImatrixOptions options;
    options.model = kDemo;
    options.engine.threads = 1;
    options.texts = {folder_.File("text.txt")};
    options.path = folder_.File("imatrix");
    return options;
  }
  TempFolder folder_;
};

constexpr const char* kStory =
    "Once upon a time there was a little dog. The dog liked to play with a red ball in the park. ";

// The sums of one row of the file, as they stand there.
std::vector<float> RowOf(const GgufFile& file, const std::string& name, size_t row, size_t width) {
  const std::string bytes = Bytes(file, file.Find(name)->extent);
  std::vector<float> values(width);
  std::memcpy(values.data(), bytes.data() + row * width * sizeof(float), width * sizeof(float));
  return values;
}

TEST_F(MakeImatrixTest, QuantisingWeighsColumnsByTheirMeanSquares) {
  const auto made = MakeImatrix(Options(kStory));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_GT(made->tokens, 15U);
  ASSERT_EQ(made->unvisited.size(), 6U);
  QuantizeOptions options{.model = kDemo,
                          .types = ParseLowTypes("q2_k,gate=iq2_xxs").value(),
                          .imatrix = folder_.File("imatrix"),
                          .path = folder_.File("low.gguf"),
                          .threads = 2};
  const auto written = WriteLowCopies(options);
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(written->unvisited, made->unvisited);
  const auto model = ModelFile::Open(kDemo);
  const auto low = OpenLowCopies(options.path.text(), *model);
  ASSERT_TRUE(low) << low.error().message;
  EXPECT_EQ(low->gguf.FindString(kLowImatrixKey).value(), "imatrix");
  const auto sums = GgufFile::Open(options.imatrix);
  ASSERT_TRUE(sums) << sums.error().message;
  size_t compared = 0;
  for (const Matrix m : {Matrix::kGate, Matrix::kDown}) {
    const std::string name =
        m == Matrix::kGate ? "blk.3.ffn_gate_exps.weight" : "blk.3.ffn_down_exps.weight";
    const ExpertMatrix& from = model->weights.layers[3].experts[m];
    const ExpertMatrix& to = low->layers[3][m];
    for (size_t e = 0; e < from.slices.size(); ++e) {
      const float count = RowOf(*sums, name + ".counts", e, 1)[0];
      if (count == 0) continue;
      std::vector<float> columns = RowOf(*sums, name + ".in_sum2", e, from.n_in);
      for (float& column : columns) column /= count;
      std::string wanted(to.slices[e].length, '\0');
      ggml_quantize_chunk(to.types[e], Floats(model->gguf, from, e).data(), wanted.data(), 0,
                          from.n_out, from.n_in, columns.data());
      EXPECT_EQ(Bytes(low->gguf, to.slices[e]), wanted) << name << " expert " << e;
      ++compared;
    }
  }
  EXPECT_GT(compared, 8U);
}

// What the shards of a run found, added up before anything is rounded to F32.
ImatrixRun MergedRun(ImatrixOptions options, uint32_t count) {
  std::vector<std::string> paths;
  const std::string path = options.path.text();
  for (uint32_t index = 1; index <= count; ++index) {
    options.shard = {.index = index, .count = count};
    options.path = paths.emplace_back(path + std::to_string(index));
    const auto made = MakeImatrix(options);
    EXPECT_TRUE(made) << made.error().message;
  }
  const auto found = FindShards(paths);
  EXPECT_TRUE(found) << found.error().message;
  auto run = MergeImatrix(*found);
  EXPECT_TRUE(run) << run.error().message;
  return *std::move(run);
}

TEST_F(MakeImatrixTest, ShardsAddUpToTheWholeRun) {
  ImatrixOptions options = Options(std::string(kStory) + kStory + kStory);
  options.engine.ctx = 16;
  const ImatrixRun whole = MergedRun(options, 1);
  EXPECT_GE(whole.info.chunk_count, 4U);
  for (const uint32_t count : {2U, 3U, 9U}) {
    const ImatrixRun merged = MergedRun(options, count);
    EXPECT_EQ(merged.tokens, whole.tokens);
    double worst = 0.0;
    for (size_t l = 0; l < whole.sums.shape().n_ff.size(); ++l) {
      const ImatrixSums::Layer& a = whole.sums.layer(l);
      const ImatrixSums::Layer& b = merged.sums.layer(l);
      EXPECT_EQ(a.counts, b.counts);
      for (const auto sums : {&ImatrixSums::Layer::inputs, &ImatrixSums::Layer::products}) {
        for (size_t i = 0; i < (a.*sums).size(); ++i) {
          worst = std::max(worst, std::abs((a.*sums)[i] - (b.*sums)[i]) /
                                      std::max((a.*sums)[i], std::numeric_limits<double>::min()));
        }
      }
    }
    EXPECT_LE(worst, 1e-12) << count;
  }
}

TEST_F(MakeImatrixTest, ExpertsThatNobodyCameToAreCounted) {
  ImatrixOptions options = Options(kStory);
  options.tokens = 2;
  const auto made = MakeImatrix(options);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->tokens, 2U);
  // Two tokens of 4 experts each leave 8 of 16 at least.
  for (const uint32_t unvisited : made->unvisited) {
    EXPECT_GE(unvisited, 8U);
    EXPECT_LE(unvisited, 12U);
  }
}

TEST_F(MakeImatrixTest, WhatCannotWorkIsNamed) {
  const auto message = [](const ImatrixOptions& options) {
    const auto made = MakeImatrix(options);
    return made ? std::string("made") : made.error().message;
  };
  ImatrixOptions options = Options(kStory);
  options.path = kDemo;
  EXPECT_NE(message(options).find("is read here"), std::string::npos);
  options.path = folder_.path().string();
  EXPECT_NE(message(options).find("is a folder"), std::string::npos);
  options.path = folder_.File("imatrix");
  options.texts = {folder_.File("none.txt")};
  EXPECT_NE(message(options).find("none.txt"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_.File("imatrix")));
}

TEST_F(MakeImatrixTest, ImportancesOfAnotherModelAreRefused) {
  ASSERT_TRUE(MakeImatrix(Options(kStory)));
  const std::string other = WriteTinyModel(folder_.path(), {.layers = 6, .experts = 12});
  const auto written = WriteLowCopies({.model = other,
                                       .types = ParseLowTypes("q4_0").value(),
                                       .imatrix = folder_.File("imatrix"),
                                       .path = folder_.File("low.gguf")});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, Errc::kInvalidFile);
  EXPECT_NE(written.error().message.find("made for another"), std::string::npos)
      << written.error().message;
}

}  // namespace
}  // namespace moestro
