// SPDX-License-Identifier: MIT
// The simulator decides as the engine does where tokens name the experts of the first layers, by a
// trace that was written to a file and read again.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/agreement_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

TinySpec NamedByTokens(const char* type) {
  return {.arch = "deepseek4", .type = type, .layers = 4, .experts = 16, .used = 4};
}

// Requests of the simulator, by a trace.
std::vector<std::string> Played(const Trace& trace, ReplayOptions options) {
  std::vector<std::string> lines;
  options.observer = [&](ExpertKey key, Use use, const Placement& placed) {
    lines.push_back(Line(key, use, placed));
  };
  const auto result = Replay(trace, options);
  EXPECT_TRUE(result) << result.error().message;
  return lines;
}

// The trace of a file; one without such layers where `layers` is 0.
Trace ThroughAFile(const std::string& path, const Trace& trace, uint32_t layers) {
  TraceInfo info = trace.info();
  EXPECT_EQ(info.token_layers, 1U);
  info.token_layers = layers;
  Trace other = *Trace::Create(info);
  for (size_t t = 0; t < trace.tokens(); ++t) EXPECT_TRUE(other.Add(trace.token(t)));
  EXPECT_TRUE(WriteTrace(path, other));
  auto read = ReadTrace(path);
  EXPECT_TRUE(read) << read.error().message;
  return *std::move(read);
}

class AgreementOfNames : public testing::TestWithParam<std::string> {};

TEST_P(AgreementOfNames, AFilesTraceMakesTheEnginesRequests) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder.path(), NamedByTokens("Q8_0"));
  Recorded recorded(OptionsFor("lru", GetParam(), 40.0), 1, model);
  NativeEngine& engine = recorded.engine();
  recorded.BeginSequence();
  Sequence sequence = engine.NewSequence();
  ASSERT_TRUE(Append(engine, sequence, SeededTokens(30, engine.spec().n_vocab, 3)));
  DecodeTogether(engine, 3);
  if (HasFailure()) return;
  EXPECT_GT(engine.stats().decode.evictions, 20U);
  const ReplayOptions options{.slots = engine.memory().n_slots,
                              .policy = {.name = "lru"},
                              .predictor = {.name = GetParam(), .paths = {}}};
  const std::string path = folder.File("t.trace");
  ExpectSameLines(recorded.did(), Played(ThroughAFile(path, recorded.trace(), 1), options));
  // The number counts: without it the simulator would ask in another order.
  EXPECT_NE(recorded.did(), Played(ThroughAFile(path, recorded.trace(), 0), options));
}

INSTANTIATE_TEST_SUITE_P(Predictors, AgreementOfNames, testing::Values("none", "next-router"));

// Experts that a table names are read before the first layer whatever a lossy choice makes of them.
TEST(NamesAndCopies, LossyChoices) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder.path(), NamedByTokens("Q8_0"));
  EngineOptions options = OptionsFor("lru", "next-router", 40.0);
  options.low = WriteTinyModel(folder.path(), NamedByTokens("Q2_K"));
  options.low_share = 0.3;
  options.lossy = {.t1 = 0.4, .t2 = 0.8, .drop_below = 0.05, .prefer_resident = 0.05};
  Recorded recorded(options, 1, model);
  NativeEngine& engine = recorded.engine();
  DecodeTogether(engine, 2);
  if (HasFailure()) return;
  const LossCounts& losses = engine.stats().decode.losses;
  EXPECT_GT(losses.low, 20U);
  EXPECT_GT(losses.skipped, 5U);
  EXPECT_GT(losses.replaced, 5U);
  ExpectSame(recorded, {.slots = engine.memory().n_slots,
                        .policy = {.name = "lru"},
                        .predictor = {.name = "next-router"},
                        .lossy = options.lossy,
                        .low_slots = engine.memory().n_low_slots,
                        .low_bytes = 1,
                        .router = engine.spec().router});
}

}  // namespace
}  // namespace moestro
