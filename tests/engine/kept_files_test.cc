// SPDX-License-Identifier: MIT
// What is kept of a model is used for no other one, though their headers are equal, and for no
// other choices: every kind of kept file is offered to the wrong one.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/append.h"
#include "offline/eval/eval.h"
#include "offline/fit/write_fitted.h"
#include "offline/quantize.h"
#include "serve/scheduler.h"
#include "tests/serve/scheduler_testing.h"
#include "tests/support/other_weights_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

bool IsExpert(std::string_view tensor) { return tensor.contains("_exps"); }
bool IsDense(std::string_view tensor) { return !IsExpert(tensor); }
bool IsOneNorm(std::string_view tensor) { return tensor == "blk.3.ffn_norm.weight"; }
bool IsOneExpertTensor(std::string_view tensor) { return tensor == "blk.2.ffn_up_exps.weight"; }

struct Change {
  const char* name;
  bool (*is_changed)(std::string_view tensor);
};

class OtherWeights : public ::testing::TestWithParam<Change> {
 protected:
  OtherWeights() : other_(folder_.File("other.gguf")) {
    WriteOtherWeights(kDemo, other_, GetParam().is_changed);
  }
  // A text of the demo model, saved.
  std::string SaveText() const {
    std::string path = folder_.File("text.moeseq");
    const auto engine = Open();
    Sequence sequence = engine->NewSequence();
    EXPECT_TRUE(Append(*engine, sequence, *DemoVocab().Tokenize("Once upon", true, false)));
    EXPECT_TRUE(engine->SaveSequence(sequence, "", path));
    return path;
  }
  std::string WriteLow(const std::string& model, const char* name) const {
    std::string path = folder_.File(name);
    const auto written = WriteLowCopies(
        {.model = model, .types = ParseLowTypes("q4_0").value(), .path = path, .threads = 1});
    EXPECT_TRUE(written) << written.error().message;
    return path;
  }

  TempFolder folder_;
  std::string other_;
};

INSTANTIATE_TEST_SUITE_P(All, OtherWeights,
                         ::testing::Values(Change{"experts", IsExpert}, Change{"dense", IsDense},
                                           Change{"one_norm", IsOneNorm},
                                           Change{"one_expert_tensor", IsOneExpertTensor}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(OtherWeights, HaveTheSameHeader) {
  EXPECT_EQ(ModelFile::Open(kDemo)->id.fingerprint, ModelFile::Open(other_)->id.fingerprint);
}

TEST_P(OtherWeights, DoNotTakeASavedSequence) {
  const std::string path = SaveText();
  const auto engine = Open({.model = other_});
  const auto restored = engine->RestoreSequence(path);
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().code, Errc::kInvalidRequest);
  EXPECT_TRUE(restored.error().message.contains("other weights")) << restored.error().message;
  const auto peeked = engine->PeekSequence(path);
  ASSERT_FALSE(peeked);
  EXPECT_EQ(peeked.error().message, restored.error().message);
}

TEST_P(OtherWeights, DoNotTakePrefixesFromDiskAndLeaveThemThere) {
  const SchedulerOptions options{
      .cache_folder = folder_.File("kept"), .cache_key = "k", .cache_disk = 1 << 30};
  const Wish wish = kWishes[2];
  const Said first = ServeOne(*Open(), wish, options);
  ASSERT_EQ(first.end->usage.cached_tokens, 0U);
  {
    const auto engine = Open({.model = other_});
    Scheduler scheduler(*engine, DemoVocab(), options);
    EXPECT_EQ(scheduler.status().saved_prefixes, 0U);
    const Said said = ServeAll(scheduler, {wish}).front();
    EXPECT_EQ(said.end->usage.cached_tokens, 0U);
    EXPECT_EQ(said.text, ServeOne(*Open({.model = other_}), wish).text);
  }
  const Said again = ServeOne(*Open(), wish, options);
  EXPECT_EQ(again.end->usage.cached_tokens, first.end->usage.prompt_tokens - 1);
  EXPECT_EQ(again.text, first.text);
}

TEST_P(OtherWeights, DoNotTakeAFileUnderTheNameOfTheirOwnPrefix) {
  const SchedulerOptions options{
      .cache_folder = folder_.File("kept"), .cache_key = "k", .cache_disk = 1 << 30};
  const auto file_of = [&] {
    return std::filesystem::directory_iterator(options.cache_folder)->path();
  };
  const Wish wish = kWishes[2];
  ServeOne(*Open({.model = other_}), wish, options);
  const std::filesystem::path theirs = file_of();
  std::filesystem::remove(theirs);
  ServeOne(*Open(), wish, options);
  std::filesystem::rename(file_of(), theirs);
  const Said said = ServeOne(*Open({.model = other_}), wish, options);
  EXPECT_EQ(said.end->usage.cached_tokens, 0U);
}

TEST_P(OtherWeights, DoNotTakeAClientsSavedText) {
  const SchedulerOptions options{.cache_key = "k", .saved_texts_folder = folder_.path().string()};
  {
    const auto engine = Open();
    Scheduler scheduler(*engine, DemoVocab(), options);
    ServeWhile(scheduler, [&] {
      Answer(scheduler, kWishes[2]);
      EXPECT_TRUE(Do(scheduler, SaveAction::kSave, 0, "text"));
    });
  }
  const auto engine = Open({.model = other_});
  Scheduler scheduler(*engine, DemoVocab(), options);
  ServeWhile(scheduler, [&] {
    const Outcome restored = Do(scheduler, SaveAction::kRestore, 0, "text");
    ASSERT_FALSE(restored);
    EXPECT_EQ(restored.error().status, 400);
    EXPECT_TRUE(restored.error().message.contains("other weights")) << restored.error().message;
    EXPECT_EQ(Answer(scheduler, kWishes[2]).usage.cached_tokens, 0U);
  });
}

TEST_P(OtherWeights, DoNotTakeLowCopies) {
  const std::string low = WriteLow(kDemo, "low.gguf");
  EngineOptions options;
  options.threads = 1;
  options.low = low;
  options.cache = CacheSize{.percent = 50.0};
  EXPECT_TRUE(NativeEngine::Open(kDemo, options));
  const auto refused = NativeEngine::Open(other_, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
  EXPECT_TRUE(refused.error().message.contains("other weights")) << refused.error().message;
}

TEST_P(OtherWeights, DoNotLendLowCopiesToAModelThatWasFittedFromTheFirst) {
  const std::string fitted = folder_.File("fitted.gguf");
  const ModelFile demo = *ModelFile::Open(kDemo);
  std::string widths(size_t{demo.spec.n_expert_layers()} * demo.spec.router.n_expert, '0');
  widths.front() = '1';
  const auto written = WriteFitted({.model = kDemo,
                                    .high = {},
                                    .low = ParseLowTypes("q4_K").value(),
                                    .widths = widths,
                                    .path = fitted,
                                    .threads = 1});
  ASSERT_TRUE(written) << written.error().message;
  EngineOptions options;
  options.threads = 1;
  options.cache = CacheSize{.percent = 50.0};
  options.low = WriteLow(kDemo, "low.gguf");
  EXPECT_TRUE(NativeEngine::Open(fitted, options));
  options.low = WriteLow(other_, "other.low.gguf");
  const auto refused = NativeEngine::Open(fitted, options);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.contains("other weights")) << refused.error().message;
}

TEST_P(OtherWeights, DoNotTakeTheRowsOfAnExactRun) {
  std::ofstream(folder_.File("text.txt")) << "Once upon a time there was a little dog named Max.";
  EvalRequest request{.model = kDemo,
                      .engine = {},
                      .text = {.paths = {folder_.File("text.txt")}},
                      .against_exact = true,
                      .reference = folder_.File("rows.exact")};
  request.engine.threads = 1;
  request.engine.ctx = 64;
  EXPECT_TRUE(Evaluation::Prepare(request));
  EXPECT_TRUE(Evaluation::Prepare(request));
  request.model = other_;
  const auto refused = Evaluation::Prepare(request);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.contains("other weights")) << refused.error().message;
}

// Keys and values of one choice are not those of another: `first` saves, `second` must not go on.
struct Choices {
  const char* name;
  std::function<void(EngineOptions&)> first;
  std::function<void(EngineOptions&)> second;
};

class OtherChoices : public ::testing::TestWithParam<Choices> {};

INSTANTIATE_TEST_SUITE_P(
    All, OtherChoices,
    ::testing::Values(
        Choices{"exact_after_drop", [](EngineOptions& o) { o.lossy.drop_below = 0.2; }, {}},
        Choices{"drop_after_exact", {}, [](EngineOptions& o) { o.lossy.drop_below = 0.2; }},
        Choices{"drop_after_other_drop", [](EngineOptions& o) { o.lossy.drop_below = 0.2; },
                [](EngineOptions& o) { o.lossy.drop_below = 0.3; }},
        Choices{"exact_after_prefer", [](EngineOptions& o) { o.lossy.prefer_resident = 0.2; }, {}},
        Choices{"exact_after_little", [](EngineOptions& o) { o.little.n_used = 2; }, {}},
        Choices{"little_after_other_little", [](EngineOptions& o) { o.little.n_used = 2; },
                [](EngineOptions& o) { o.little.n_used = 1; }},
        Choices{"other_memory_of_a_lossy_run", [](EngineOptions& o) { o.lossy.drop_below = 0.2; },
                [](EngineOptions& o) {
                  o.lossy.drop_below = 0.2;
                  o.cache = CacheSize{.percent = 50.0};
                }}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(OtherChoices, TakeNeitherPrefixesNorSavedTexts) {
  const TempFolder folder;
  const SchedulerOptions options{.cache_folder = folder.File("kept"),
                                 .cache_key = "k",
                                 .cache_disk = 1 << 30,
                                 .saved_texts_folder = folder.path().string()};
  const Wish wish = kWishes[2];
  TextEnd first;
  {
    const auto engine = Open({.change = GetParam().first});
    Scheduler scheduler(*engine, DemoVocab(), options);
    ServeWhile(scheduler, [&] {
      first = Answer(scheduler, wish);
      EXPECT_TRUE(Do(scheduler, SaveAction::kSave, 0, "text"));
    });
  }
  const auto engine = Open({.change = GetParam().second});
  Scheduler scheduler(*engine, DemoVocab(), options);
  ServeWhile(scheduler, [&] {
    const Outcome restored = Do(scheduler, SaveAction::kRestore, 0, "text");
    ASSERT_FALSE(restored);
    EXPECT_EQ(restored.error().status, 400);
    EXPECT_TRUE(restored.error().message.contains("was saved with")) << restored.error().message;
    EXPECT_EQ(Answer(scheduler, wish).usage.cached_tokens, 0U);
  });
  // The same choices find what they left.
  const auto again = Open({.change = GetParam().first});
  EXPECT_EQ(ServeOne(*again, wish, options).end->usage.cached_tokens,
            first.usage.prompt_tokens - 1);
}

}  // namespace
}  // namespace moestro
