// SPDX-License-Identifier: MIT
// Drafts in a scheduler: the same texts in fewer steps, alone and beside others, whatever else goes
// on; nothing of a wrong draft stays.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/serve/scheduler_testing.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

// A clock by which a step takes the same time however many rows it has, so that drafts always pay.
class StepClock {
 public:
  double operator()() { return seconds_ += 1e-3; }

 private:
  double seconds_ = 0.0;
};

const std::vector<Wish>& LongWishes() {
  static const std::vector<Wish> wishes = {
      {.prompt = "Once upon a time there was a dog. The dog ran. The dog ran. The dog",
       .tokens = 70},
      {.prompt = "Tom said yes. Lily said yes. Tom said yes. Lily",
       .seed = 4,
       .temp = 0.7F,
       .tokens = 60},
      {.prompt = "One day a cat saw a bird. One day a", .seed = 5, .temp = 1.0F, .tokens = 50},
      {.prompt = "Mom said", .seed = 9, .temp = 0.7F, .tokens = 50},
      {.prompt = "A cat", .tokens = 3}};
  return wishes;
}

std::vector<Said> ServeWith(NativeEngine& engine, SchedulerOptions options,
                            ServeTotals* totals = nullptr,
                            const std::vector<Wish>& wishes = LongWishes()) {
  engine.stats() = {};
  Scheduler scheduler(engine, DemoVocab(), std::move(options), StepClock());
  std::vector<Said> said = ServeAll(scheduler, wishes);
  if (totals != nullptr) *totals = scheduler.status().totals;
  return said;
}

void ExpectSame(const std::vector<Said>& drafted, const std::vector<Said>& plain) {
  ASSERT_EQ(drafted.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    ASSERT_TRUE(plain[i].end && drafted[i].end) << i;
    EXPECT_EQ(drafted[i].text, plain[i].text) << i;
    EXPECT_EQ(drafted[i].end->reason, plain[i].end->reason) << i;
    EXPECT_EQ(drafted[i].end->usage.completion_tokens, plain[i].end->usage.completion_tokens) << i;
    ASSERT_EQ(drafted[i].logprobs.size(), plain[i].logprobs.size()) << i;
    for (size_t n = 0; n < plain[i].logprobs.size(); ++n) {
      EXPECT_EQ(drafted[i].logprobs[n].chosen.logprob, plain[i].logprobs[n].chosen.logprob);
    }
  }
}

class SchedulerDraftsTest : public testing::TestWithParam<DraftOptions> {};

TEST_P(SchedulerDraftsTest, GiveTheSameTextsInFewerSteps) {
  const auto engine = Open();
  for (const uint32_t parallel : {1U, 4U}) {
    ServeTotals plain;
    const std::vector<Said> without = ServeWith(*engine, {.parallel = parallel}, &plain);
    ServeTotals drafted;
    const std::vector<Said> with =
        ServeWith(*engine, {.parallel = parallel, .draft = GetParam()}, &drafted);
    ExpectSame(with, without);
    EXPECT_EQ(drafted.generated, plain.generated);
    EXPECT_LT(drafted.steps, plain.steps);
    const DraftStats& stats = engine->stats().drafts;
    EXPECT_GT(stats.accepted, 0U);
    EXPECT_GE(stats.proposed, stats.accepted);
    uint64_t told = 0;
    for (const Said& said : with) told += said.end->usage.drafted_tokens;
    EXPECT_EQ(told, stats.proposed);
  }
}

// Positions run out while texts draft: texts give way to each other as without drafts.
TEST_P(SchedulerDraftsTest, GiveTheSameTextsWhereTheCacheIsTight) {
  const auto roomy = Open();
  const std::vector<Said> plain = ServeWith(*roomy, {.parallel = 4});
  const auto tight = Open({.positions = 200});
  ExpectSame(ServeWith(*tight, {.parallel = 4, .draft = GetParam()}), plain);
}

// A later text that begins with an earlier one finds what was right and nothing else.
TEST_P(SchedulerDraftsTest, LeaveNothingOfAWrongDraftInKeptTexts) {
  const auto engine = Open();
  const Wish first{.prompt = LongWishes()[0].prompt, .tokens = 60};
  Scheduler plain(*engine, DemoVocab(), {});
  std::string story;
  ServeWhile(plain, [&] { Answer(plain, first, &story); });
  const Wish next{.prompt = first.prompt + story + " The dog ran", .tokens = 60};
  const Said expected = ServeOne(*engine, next);
  Scheduler scheduler(*engine, DemoVocab(), {.draft = GetParam()}, StepClock());
  ServeWhile(scheduler, [&] {
    std::string again;
    Answer(scheduler, first, &again);
    EXPECT_EQ(again, story);
    std::string more;
    const TextEnd end = Answer(scheduler, next, &more);
    EXPECT_EQ(more, expected.text);
    EXPECT_GT(end.usage.cached_tokens, 60U);
  });
}

// The texts beside a client that leaves in the middle of its drafts are as ever.
TEST_P(SchedulerDraftsTest, EndWithTheirClient) {
  const auto engine = Open();
  const Said expected = ServeOne(*engine, LongWishes()[1]);
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 2, .draft = GetParam()}, StepClock());
  const auto leaving = Make(LongWishes()[0]);
  const auto staying = Make(LongWishes()[1]);
  ASSERT_TRUE(scheduler.Submit(leaving));
  ASSERT_TRUE(scheduler.Submit(staying));
  ServeWhile(scheduler, [&] {
    while (leaving->generated() < 40) {
      if (!leaving->Next(std::chrono::milliseconds(10)) && leaving->is_over()) break;
    }
    leaving->Cancel();
    scheduler.Withdraw(*leaving);
  });
  EXPECT_EQ(Listen(*staying).text, expected.text);
}

TEST_P(SchedulerDraftsTest, SurviveFailedReads) {
  const auto engine = Open();
  const std::vector<Said> plain = ServeWith(*engine, {.parallel = 2});
  for (const uint64_t at : {40ULL, 200ULL}) {
    const auto faulty = Open({.percent = 12.5, .wrap = [&](std::unique_ptr<BlockReader> disk) {
                                auto plan = FaultScript().ErrorAt(at, EIO).ErrorAt(at + 1, EIO);
                                return std::make_unique<FaultReader>(std::move(disk), plan);
                              }});
    const std::vector<Said> said = ServeWith(*faulty, {.parallel = 2, .draft = GetParam()});
    for (size_t i = 0; i < said.size(); ++i) {
      ASSERT_TRUE(said[i].end || said[i].error) << i;
      if (!said[i].end) continue;
      EXPECT_EQ(said[i].text, plain[i].text) << i;
    }
  }
}

// A state that cannot be cut back is kept after each drafted token.
TEST_P(SchedulerDraftsTest, GiveTheSameTextsOfAModelWithStates) {
  const TempFolder folder;
  const std::string model =
      WriteTinyModel(folder.path(), {.arch = "qwen35moe", .vocab_path = kDemo});
  const auto engine = Open({.model = model});
  std::vector<Wish> wishes = LongWishes();
  for (Wish& wish : wishes) wish.tokens += 50;  // its texts repeat themselves late
  const std::vector<Said> without = ServeWith(*engine, {.parallel = 2}, nullptr, wishes);
  ExpectSame(ServeWith(*engine, {.parallel = 2, .draft = GetParam()}, nullptr, wishes), without);
  EXPECT_GT(engine->stats().drafts.proposed, 0U);
}

// By a clock on which each row costs as much as a step, a text stops drafting after its trials.
TEST_P(SchedulerDraftsTest, EndWhereTheyDoNotPay) {
  const auto engine = Open();
  engine->stats() = {};
  const Clock clock = [&engine] {
    const RunStats& stats = engine->stats();
    return static_cast<double>(stats.prefill.tokens + stats.decode.tokens) + 1.0;
  };
  Scheduler scheduler(*engine, DemoVocab(), {.draft = GetParam()}, clock);
  const std::vector<Said> said = ServeAll(scheduler, {LongWishes()[0], LongWishes()[1]});
  for (const Said& one : said) {
    ASSERT_TRUE(one.end);
    EXPECT_GT(one.end->usage.drafted_tokens, 0U);
    EXPECT_LE(one.end->usage.drafted_tokens, 20U);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SchedulerDraftsTest,
                         testing::Values(DraftOptions{.kind = DraftKind::kNgram, .most = 8},
                                         DraftOptions{.kind = DraftKind::kLittle, .most = 4}),
                         [](const auto& kind) {
                           return kind.param.kind == DraftKind::kNgram ? "Ngram" : "Little";
                         });

// Texts beside each other, each with drafts of the layer that predicts further tokens: its cells
// follow every text, also one that goes on from an earlier one's prefix.
TEST(SchedulerPredictionTest, AModelsOwnLayerDraftsForSeveralTexts) {
  const TempFolder folder;
  for (const std::string arch : {"glm4moe", "qwen35moe"}) {
    SCOPED_TRACE(arch);
    const std::string model =
        WriteTinyModel(folder.path(), {.arch = arch, .predicting = 1, .vocab_path = kDemo});
    const std::vector<Said> without = ServeWith(*Open({.model = model}), {.parallel = 4});
    const auto predicting =
        Open({.model = model, .change = [](EngineOptions& options) { options.predicts = true; }});
    const SchedulerOptions options{.parallel = 4,
                                   .draft = {.kind = DraftKind::kPredicting, .most = 2}};
    ExpectSame(ServeWith(*predicting, options), without);
    EXPECT_GT(predicting->stats().drafts.proposed, 0U);
    // Once more, from kept prefixes where the first run left some.
    ExpectSame(ServeWith(*predicting, options), without);
  }
}

}  // namespace
}  // namespace moestro
