// SPDX-License-Identifier: MIT
// A width for each expert: what is written computes what was meant, and the search meets its
// tolerance.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "core/random_tokens.h"
#include "model/tensor_names.h"
#include "offline/fit/fit_order.h"
#include "offline/fit/fit_search.h"
#include "offline/quantize.h"
#include "offline/record/imatrix_file.h"
#include "tests/support/one_sequence_testing.h"
#include "tests/support/product_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

const std::string kDemo = MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf";

LowTypes Types(const char* text) { return ParseLowTypes(text).value(); }

class FitTest : public testing::Test {
 protected:
  static EngineOptions Options(double percent = 60.0) {
    EngineOptions options;
    options.ctx = 64;
    options.threads = 1;
    options.cache = CacheSize{.percent = percent};
    return options;
  }
  // A prompt, then tokens one by one; experts in `is_low` by their low copies.
  static std::vector<float> Logits(const std::string& model, const EngineOptions& options,
                                   const std::string& widths = {}) {
    auto engine = OneSequence::Open(model, options);
    EXPECT_TRUE(engine) << engine.error().message;
    std::vector<float> all;
    if (!engine) return all;
    const ModelSpec& spec = (*engine)->spec();
    if (!widths.empty()) {
      (*engine)->engine().SetCopyOverride([&, n = spec.router.n_expert](ExpertKey own) -> CopyId {
        return widths[size_t{own.layer.value} * n + own.expert.value] == '1' ? kLowCopy : own.copy;
      });
    }
    const auto prompt = (*engine)->Append(RandomTokens(20, spec.n_vocab, 3));
    EXPECT_TRUE(prompt);
    if (prompt) all.append_range(*prompt);
    for (const Token t : RandomTokens(20, spec.n_vocab, 4)) {
      const auto logits = (*engine)->Append({&t, 1});
      EXPECT_TRUE(logits);
      if (logits) all.append_range(*logits);
    }
    return all;
  }
  void Write(const std::string& model, const Width& high, const Width& low,
             const std::string& widths, const std::string& imatrix = {}) const {
    const auto written = WriteFitted({.model = model,
                                      .high = high,
                                      .low = low,
                                      .widths = widths,
                                      .imatrix = imatrix,
                                      .path = folder_.File("fitted.gguf"),
                                      .threads = 2,
                                      .overwrite = true});
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_EQ(*written, std::filesystem::file_size(folder_.File("fitted.gguf")));
  }
  // Importances at random, all columns of every expert's matrix.
  std::string WriteImportances(const std::string& model) const {
    const auto opened = ModelFile::Open(model);
    EXPECT_TRUE(opened);
    std::mt19937 random(5);
    std::deque<std::vector<double>> all_sums;
    std::deque<std::vector<uint64_t>> all_counts;
    std::vector<ImatrixEntry> entries;
    for (uint32_t l = 0; l < opened->spec.n_layer(); ++l) {
      for (const Matrix m : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
        const ExpertMatrix& matrix = opened->weights.layers[l].experts[m];
        const auto& counts = all_counts.emplace_back(matrix.slices.size(), 7U);
        auto& sums = all_sums.emplace_back(matrix.slices.size() * matrix.n_in);
        for (double& sum : sums) sum = static_cast<double>(random() % 1000) + 1.0;
        entries.push_back(
            {.name = MergedExpertsName(l, m), .n_in = matrix.n_in, .sums = sums, .counts = counts});
      }
    }
    std::string path = folder_.File("imatrix.gguf");
    EXPECT_TRUE(
        WriteImatrix(path, {.datasets = {"none"}, .chunk_count = 1, .chunk_size = 7}, entries));
    return path;
  }
  FitRequest Request(double most) const {
    std::ofstream text(folder_.File("text.txt"));
    for (int i = 0; i < 40; ++i) {
      text << "Once upon a time there was a little dog named Max. He had " << i
           << " red balls, and his friend Lily wanted to play in the park with him. ";
    }
    FitRequest request;
    request.model = kDemo;
    request.engine.ctx = 64;
    request.engine.threads = 1;
    request.text = {.paths = {folder_.File("text.txt")}, .tokens = 250};
    request.tolerance.most = most;
    request.widths = {GGML_TYPE_Q2_K, GGML_TYPE_Q4_K};
    request.scratch = folder_.path().string();
    request.path = folder_.File("fitted.gguf");
    request.overwrite = true;
    return request;
  }

  TempFolder folder_;
};

class FitOfFamily : public FitTest, public testing::WithParamInterface<std::string> {};

TEST_P(FitOfFamily, AtTheSourcesWidthNoBitChanges) {
  const std::string model =
      WriteTinyModel(folder_.path(), {.arch = GetParam(), .type = "Q4_K_M", .layers = 3});
  const auto opened = ModelFile::Open(model);
  ASSERT_TRUE(opened);
  const std::string widths(size_t{opened->id.shape.n_layer} * opened->id.shape.n_expert, '0');
  Write(model, {}, {}, widths);
  EXPECT_EQ(Logits(folder_.File("fitted.gguf"), Options()), Logits(model, Options()));
}

// The cover has each kind of mixers, router, experts and norms.
std::vector<std::string> FamiliesOfPart(uint32_t part) {
  return CellsOfPart(part, TinyArchs(), TraitsOf);
}

MOESTRO_INSTANTIATE_PARTS(FitOfFamily, FamiliesOfPart,
                          [](const auto& one) { return CaseName(one.param); });

TEST_F(FitTest, LowerExpertsComputeAsTheirLowCopies) {
  const std::string model = WriteTinyModel(folder_.path(), {.arch = "qwen3moe", .type = "Q8_0"});
  const std::string low = folder_.File("low.gguf");
  ASSERT_TRUE(WriteLowCopies({.model = model, .types = Types("q2_k,down=q4_0"), .path = low}));
  const std::string widths = "0110111100000000";  // 2 layers of 8, the second one all high
  Write(model, {}, Types("q2_k,down=q4_0"), widths);
  EngineOptions options = Options();
  options.low = low;
  options.lossy = {.t1 = 1.0, .t2 = 1.0};
  const auto fitted = Logits(folder_.File("fitted.gguf"), Options());
  EXPECT_EQ(fitted, Logits(model, options, widths));
  EXPECT_NE(fitted, Logits(model, options));
  // Pools of two sizes at the smallest cache, and low copies of the source beside the result.
  EXPECT_EQ(fitted, Logits(folder_.File("fitted.gguf"), Options(100.0)));
  EXPECT_EQ(fitted, Logits(folder_.File("fitted.gguf"), options));
}

TEST_F(FitTest, ImportancesCountAsInLowCopies) {
  const std::string model = WriteTinyModel(folder_.path(), {.arch = "qwen3moe", .type = "Q8_0"});
  const std::string imatrix = WriteImportances(model);
  const LowTypes types = Types("q2_k,down=q4_0");
  const std::string low = folder_.File("low.gguf");
  ASSERT_TRUE(WriteLowCopies({.model = model, .types = types, .imatrix = imatrix, .path = low}));
  const std::string widths = "0110111100000000";
  EngineOptions options = Options();
  options.low = low;
  options.lossy = {.t1 = 1.0, .t2 = 1.0};
  Write(model, {}, types, widths);
  const auto plain = Logits(folder_.File("fitted.gguf"), Options());
  Write(model, {}, types, widths, imatrix);
  const auto judged = Logits(folder_.File("fitted.gguf"), Options());
  EXPECT_EQ(judged, Logits(model, options, widths));
  EXPECT_NE(judged, plain);
  const auto other = WriteFitted({.model = kDemo,
                                  .high = {},
                                  .low = types,
                                  .widths = std::string(size_t{6} * 16, '1'),
                                  .imatrix = imatrix,
                                  .path = folder_.File("other.gguf")});
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("another"), std::string::npos) << other.error().message;
}

TEST_F(FitTest, AFittedModelIsNoSource) {
  const std::string model = WriteTinyModel(folder_.path(), {.type = "Q8_0"});
  Write(model, {}, Types("q4_0"), "0110111100000000");
  const auto again = WriteLowCopies({.model = folder_.File("fitted.gguf"),
                                     .types = Types("q2_k,down=q4_0"),
                                     .path = folder_.File("low.gguf")});
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("is a fitted model"), std::string::npos);
}

TEST_F(FitTest, ChoosesExpertsWithinTheTolerance) {
  FitRequest request = Request(1.0);
  request.engine.ctx = 32;
  request.text.tokens = 120;
  const auto all = FitWidths(request);
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->moved, 6U * 16);  // such a loss allows anything
  EXPECT_EQ(all->ranking, FitRanking::kNone);
  const double q4 = all->uniform[1].loss->value;
  const double q2 = all->uniform[2].loss->value;
  ASSERT_GT(q2, q4);
  request.tolerance.most = (q4 + q2) / 2.0;
  request.measure_most = 0;  // a sample is quicker
  request.measure_minutes = 0.0;
  const auto some = FitWidths(request);
  ASSERT_TRUE(some) << some.error().message;
  ASSERT_TRUE(some->rank_correlation);
  EXPECT_GT(some->moved, 0U);
  EXPECT_LT(some->moved, 6U * 16);
  EXPECT_LE(some->loss.value, request.tolerance.most);
  EXPECT_FALSE(some->checked);  // four windows are too few
  EXPECT_EQ(static_cast<uint64_t>(std::ranges::count(some->widths, '1')), some->moved);
  EXPECT_EQ(some->n_measured(), 64U);
  const auto fitted = ModelFile::Open(request.path.text());
  ASSERT_TRUE(fitted) << fitted.error().message;
  EXPECT_EQ(fitted->weights.fit->widths, some->widths);
  // Nothing else is left behind.
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("moestro-fit-")) << entry.path();
  }
}

TEST_F(FitTest, MeasuresEachExpertOnceAndGoesOnWhereItWas) {
  FitRequest request = Request(1e-12);
  request.engine.ctx = 32;
  request.text.tokens = 120;
  request.widths = {GGML_TYPE_Q2_K};
  ASSERT_FALSE(FitWidths(request));  // after everything has been measured
  request.tolerance.most = 0.005;
  const auto fitted = FitWidths(request);
  ASSERT_TRUE(fitted) << fitted.error().message;
  EXPECT_TRUE(std::ranges::all_of(fitted->importance, [](const auto& i) { return i.has_value(); }));
  EXPECT_EQ(fitted->ranking, fitted->noise_share > 0.5 ? FitRanking::kUse : FitRanking::kMeasured);
  EXPECT_LE(fitted->loss.value, 0.005);
  EXPECT_GT(fitted->moved, 0U);
  // Not one expert was measured again: the base run, and the steps of the bisection.
  EXPECT_LE(fitted->evaluated, fitted->calibration_tokens + 8 * fitted->held_out_tokens);
}

// Layers of experts that differ by how often they are used alone: what is used more loses more.
TEST_F(FitTest, AnEstimateThatASampleBearsOutIsBelieved) {
  FitRequest request = Request(0.0);
  request.model = WriteTinyModel(folder_.path(), {.arch = "qwen3moe",
                                                  .type = "F16",
                                                  .layers = 3,
                                                  .experts = 24,
                                                  .used = 2,
                                                  .ff = 256,
                                                  .skew = 1.5,
                                                  .vocab_path = kDemo});
  request.widths = {GGML_TYPE_Q2_K};
  request.tolerance.most = 1e-3;
  request.measure_most = 71;
  const auto fitted = FitWidths(request);
  ASSERT_TRUE(fitted) << fitted.error().message;
  EXPECT_GE(fitted->rank_correlation.value_or(0.0), kLeastCorrelation);
  EXPECT_EQ(fitted->ranking, FitRanking::kEstimated);
  EXPECT_EQ(fitted->n_measured(), 64U);
}

// Time is what the search is told it is: a minute at each look.
TEST_F(FitTest, AnEstimateThatASampleBeliesIsNotBelievedAndOthersAreMeasuredInTheirTime) {
  FitRequest request = Request(0.005);
  request.engine.ctx = 32;
  request.text.tokens = 120;
  request.widths = {GGML_TYPE_Q2_K};
  request.measure_most = 95;
  request.least_correlation = 0.999;  // no estimate is as good as that
  request.measure_minutes = 10.5;
  double now = 0.0;
  request.clock = [&now] { return now += 60.0; };
  std::string notes;
  request.note = [&notes](const std::string& note) { notes += note + "\n"; };
  const auto fitted = FitWidths(request);
  ASSERT_TRUE(fitted) << fitted.error().message;
  EXPECT_LT(fitted->rank_correlation.value_or(1.0), request.least_correlation);
  EXPECT_EQ(fitted->ranking, FitRanking::kMeasured);
  EXPECT_EQ(fitted->n_measured(), 64U + 10U);
  EXPECT_NE(notes.find("at most 10.5 (--measure-minutes)"), std::string::npos) << notes;
  // Who was not measured goes lower last.
  for (size_t e = 0; e < fitted->importance.size(); ++e) {
    EXPECT_TRUE(fitted->importance[e] || fitted->moved > 74 || fitted->widths[e] == '0') << e;
  }
}

TEST_F(FitTest, ChecksTheResultOnWhatChoseNothing) {
  FitRequest request = Request(1.0);
  request.text.tokens = 504;
  const auto all = FitWidths(request);
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_TRUE(all->checked);
  EXPECT_EQ(all->checked_tokens, 2U * 63);
  EXPECT_EQ(all->held_out_tokens, 2U * 63);
  EXPECT_GT(all->checked->value, 0.0);
  EXPECT_NE(all->checked->value, all->loss.value);
}

TEST_F(FitTest, SaysWhatCanBeMet) {
  FitRequest request = Request(1e-12);
  request.measure_most = 0;
  request.measure_minutes = 0.0;
  const auto none = FitWidths(request);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("the nearest that can be is KL="), std::string::npos)
      << none.error().message;
  request.path = "";
  EXPECT_FALSE(FitWidths(request));
  request = Request(0.1);
  request.text.tokens = 60;
  const auto too_short = FitWidths(request);
  ASSERT_FALSE(too_short);
  EXPECT_NE(too_short.error().message.find("--window"), std::string::npos);
  request = Request(0.1);
  request.widths = {GGML_TYPE_F16};
  const auto nothing_lower = FitWidths(request);
  ASSERT_FALSE(nothing_lower);
  EXPECT_NE(nothing_lower.error().message.find("--widths"), std::string::npos);
}

}  // namespace
}  // namespace moestro
