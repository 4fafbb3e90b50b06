// SPDX-License-Identifier: MIT
#include "speed/benchmark.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/batch.h"
#include "engine/append.h"
#include "model/model_file.h"
#include "native/dense_model.h"
#include "native/native_engine.h"

namespace moestro {
namespace {

TEST(HashLogits, DependsOnEveryBit) {
  const std::vector<float> a = {1.0F, 2.0F};
  EXPECT_EQ(HashLogits(a), HashLogits(std::vector<float>{1.0F, 2.0F}));
  EXPECT_NE(HashLogits(a), HashLogits(std::vector<float>{2.0F, 1.0F}));
  EXPECT_NE(HashLogits(std::vector<float>{0.0F}), HashLogits(std::vector<float>{-0.0F}));
  EXPECT_EQ(HashLogits({}), "cbf29ce484222325");
}

Json OneRun(const std::string& name, double tps, int slots) {
  Json run = Json::Object();
  run.Set("name", name).Set("tps", tps).Set("slots", slots).Set("limit", Json());
  return run;
}

TEST(Medians, NumbersAreMediansAndTheRestIsTheFirstRuns) {
  std::vector<Json> runs;
  runs.push_back(OneRun("a", 3.0, 12));
  runs.push_back(OneRun("b", 1.0, 12));
  runs.push_back(OneRun("c", 2.5, 12));
  const Json result = MediansOf(runs);
  EXPECT_EQ(result.Find("tps")->Dump(), "2.5");
  EXPECT_EQ(result.Find("slots")->Dump(), "12");
  EXPECT_EQ(result.Find("name")->Dump(), "\"a\"");
  EXPECT_EQ(result.Find("limit")->Dump(), "null");
}

TEST(Medians, OfTwoRunsAreTheMiddle) {
  std::vector<Json> runs;
  runs.push_back(OneRun("a", 1.0, 1));
  runs.push_back(OneRun("a", 2.0, 4));
  EXPECT_EQ(MediansOf(runs).Find("tps")->Dump(), "1.5");
  EXPECT_EQ(MediansOf(runs).Find("slots")->Dump(), "2.5");
}

const std::string kDemo = MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf";

// Decodes three tokens after a prompt and tells what the limit says of them.
struct Decoded {
  RunReport report;
  Result<Limit> limit = Fail(Errc::kIo, "nothing was decoded");
};

Decoded Decode(const DecodeShape& shape) {
  Decoded result;
  auto engine = NativeEngine::Open(kDemo, {.cache = CacheSize{.percent = 30.0}, .threads = 1});
  EXPECT_TRUE(engine) << engine.error().message;
  if (!engine) return result;
  Sequence sequence = (*engine)->NewSequence();
  EXPECT_TRUE(Append(**engine, sequence, std::vector<Token>{1, 2, 3, 4}));
  (*engine)->stats() = {};
  DecodeLimit limit(**engine, shape);
  for (const Token token : {5, 6, 7}) {
    EXPECT_TRUE(limit.Probe());
    EXPECT_TRUE(Append(**engine, sequence, {&token, 1}));
  }
  limit.Stop();
  auto report = MakeReport(**engine, sequence, true);
  EXPECT_TRUE(report) << report.error().message;
  if (!report) return result;
  result.report = *report;
  result.limit = limit.Find(*report);
  return result;
}

TEST(DecodeLimit, CountsWhatHadToBeTouchedAndRead) {
  const Decoded done = Decode({.steps = 3});
  ASSERT_TRUE(done.limit) << done.limit.error().message;
  const PhaseStats& decode = done.report.stats.decode;
  const auto model = ModelFile::Open(kDemo);
  ASSERT_TRUE(model);
  const DenseReads dense =
      DenseReads::Of(model->weights, model->spec, *MemoryShape::Of(model->spec, KvType::kF16));
  uint64_t touched = decode.requests * 3 * 256 * 256 / 32 * 34;  // three matrices of Q8_0
  for (const uint32_t position : {4U, 5U, 6U}) {
    touched += dense.OfPass(
        std::vector{BatchRow{.sequence = {}, .position = position, .wants_logits = true}});
  }
  EXPECT_EQ(decode.requests, 3U * 6 * 4);
  EXPECT_EQ(done.limit->touched_bytes, touched);
  EXPECT_GT(done.limit->fewest_bytes, 0U);
  EXPECT_LE(done.limit->fewest_bytes, decode.needed_bytes);
  EXPECT_GE(done.limit->disk_bandwidth.best, done.report.probes.disk_bandwidth.best);
  EXPECT_GE(done.limit->memory_bandwidth.best, done.limit->memory_bandwidth.least);
  EXPECT_GT(done.limit->memory_bandwidth.least, 0.0);
  EXPECT_LE(done.limit->percent(decode.seconds), 100.0);
}

TEST(DecodeLimit, SaysWhenThereWereTooManyRequests) {
  const Decoded many = Decode({.steps = 1'000'000});
  ASSERT_FALSE(many.limit);
  EXPECT_EQ(many.limit.error().code, Errc::kInvalidRequest);
  EXPECT_NE(many.limit.error().message.find("more than the 2097152"), std::string::npos);
  EXPECT_FALSE(Decode({.steps = 2}).limit);  // three were decoded
}

TEST(DecodeLimit, TakesMemoryForWhatItNotesOnly) {
  const auto model = ModelFile::Open(kDemo);
  ASSERT_TRUE(model);
  EXPECT_EQ(DecodeShape({.steps = 10}).Requests(model->id.shape), 10U * 6 * 4);
  EXPECT_EQ(DecodeShape({.steps = 10, .passes = 2, .rows = 3}).Requests(model->id.shape),
            20U * 6 * 12);
  EXPECT_EQ(DecodeShape({.steps = 10, .rows = 8}).Requests(model->id.shape), 10U * 6 * 16);
  EXPECT_GE(DecodeLimit::BytesFor(model->id.shape, {.steps = 10'000}), 10'000U * 6 * 4 * 8);
  EXPECT_EQ(DecodeLimit::BytesFor(model->id.shape, {.steps = 1'000'000}), 0U);
}

}  // namespace
}  // namespace moestro
