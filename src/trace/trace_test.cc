// SPDX-License-Identifier: MIT
#include "trace/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/temp_folder_testing.h"
#include "trace/summary.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

class TraceTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string Bytes(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  }
  std::string Put(const std::string& name, const std::string& bytes) const {
    WriteAll(Path(name), bytes);
    return Path(name);
  }
  // What the reader says of a file in which one byte is another and the checksum right.
  std::string ErrorWith(const std::string& whole, size_t at, char value) const {
    std::string bytes = whole.substr(0, whole.size() - 8);
    bytes[at] = value;
    uint64_t sum = 0xcbf29ce484222325;
    for (const char c : bytes) sum = (sum ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(sum >> shift);
    const auto read = ReadTrace(Put("wrong", bytes));
    return read ? std::string() : read.error().message;
  }
  std::string ImportError(const std::string& text) const {
    const auto trace = ImportJsonl(Put("bad.jsonl", text), 8);
    EXPECT_FALSE(trace) << text;
    return trace ? "" : trace.error().message;
  }
  void ExpectEveryDamageRefused(const Trace& trace) const;
  TempFolder folder_;
};

std::vector<ExpertId> Ids(const std::vector<uint16_t>& values) {
  std::vector<ExpertId> ids;
  for (const uint16_t value : values) ids.push_back({value});
  return ids;
}

// With `depth` 1, layer 0 predicts layer 1.
Trace Small(bool has_weights, uint32_t experts, uint32_t depth = 0, uint32_t little = 0,
            uint32_t token_layers = 0) {
  Trace trace = *Trace::Create(
      {.model = {.name = "small", .fingerprint = 0x1234567890abcdef, .shape = {2, experts, 2}},
       .expert_bytes = 12345,
       .depth = depth,
       .little = little,
       .has_weights = has_weights,
       .has_predicted_weights = has_weights,
       .has_candidates = has_weights,
       .token_layers = token_layers});
  const std::vector<float> ahead_weights = {0.123456F, -2.5F};
  const std::vector<float> weights = {0.75F, 0.25F, 1.0F, 0.0F};
  std::vector<ExpertId> candidates;
  std::vector<float> scores;
  for (uint16_t i = 0; i < 2 * trace.info().candidates(); ++i) {
    candidates.push_back({static_cast<uint16_t>(i % trace.info().candidates())});
    scores.push_back(5.5F - static_cast<float>(i));
  }
  const std::vector<float> ranges = {7.25F, 8.5F};
  const auto add = [&](Phase phase, bool starts, const std::vector<uint16_t>& ids) {
    const std::vector<ExpertId> chosen = Ids(ids);
    const std::vector<ExpertId> predicted = Ids({ids[3], 2});
    TraceToken token{.phase = phase, .starts_sequence = starts, .experts = chosen};
    if (has_weights) {
      token.weights = weights;
      token.candidates = {.experts = candidates, .scores = scores, .raw = scores, .ranges = ranges};
    }
    if (depth > 0) token.predicted = predicted;
    if (depth > 0 && has_weights) token.predicted_weights = ahead_weights;
    const std::vector<ExpertId> widened = Ids({ids[1], ids[0], ids[3], ids[2]});
    if (little > 0) {
      token.little.experts = widened;
      token.little.confidence = phase == Phase::kPrefill ? 1.0F : 0.25F;
      if (has_weights) token.little.weights = std::span(weights).first(2);
      if (depth > 0) token.little.predicted = std::span(predicted).last(1);
      if (depth > 0 && has_weights) {
        token.little.predicted_weights = std::span(ahead_weights).last(1);
      }
    }
    const Status status = trace.Add(token);
    EXPECT_TRUE(status) << status.error().message;
  };
  add(Phase::kPrefill, true, {0, 1, 2, 3});
  add(Phase::kDecode, false, {1, 0, 3, 1});
  add(Phase::kDecode, true, {4, 2, 0, static_cast<uint16_t>(experts - 1)});
  return trace;
}

// A device, or a file that is no text: what has no line ends is not read to its end.
TEST_F(TraceTest, ALineOfRoutingIsReadAsFarAsOneCanBe) {
  const std::string line = R"({"layers":[[1,2]]})";
  EXPECT_TRUE(ImportError(line + "\n" + std::string(size_t{3} << 20U, 'x')).contains("line 2"));
  const auto endless = ImportJsonl("/dev/zero", 8);
  ASSERT_FALSE(endless);
  EXPECT_TRUE(endless.error().message.contains("line 1")) << endless.error().message;
  EXPECT_TRUE(ImportJsonl(Put("right.jsonl", line + "\r\n\n" + line), 8));
}

TEST_F(TraceTest, ComesBackFromDiskAsItWas) {
  for (const uint32_t experts : {5U, 256U, 300U}) {
    for (const bool has_weights : {false, true}) {
      const Trace trace = Small(has_weights, experts, has_weights ? 1 : 0);
      ASSERT_TRUE(WriteTrace(Path("t"), trace));
      const auto read = ReadTrace(Path("t"));
      ASSERT_TRUE(read) << read.error().message;
      EXPECT_EQ(read->info(), trace.info());
      ASSERT_EQ(read->tokens(), trace.tokens());
      for (size_t t = 0; t < trace.tokens(); ++t) {
        EXPECT_EQ(read->phase(t), trace.phase(t));
        EXPECT_EQ(read->starts_sequence(t), trace.starts_sequence(t));
        for (size_t l = 0; l < 2; ++l) {
          EXPECT_TRUE(std::ranges::equal(read->experts(t, l), trace.experts(t, l)));
          EXPECT_TRUE(std::ranges::equal(read->predicted(t, l, 1), trace.predicted(t, l, 1)));
          const auto weights = read->predicted_weights(t, l, 1);
          EXPECT_EQ(weights.size(), has_weights && l == 0 ? 2U : 0U);
          EXPECT_TRUE(std::ranges::equal(weights, trace.predicted_weights(t, l, 1)));
          const CandidateSpans got = read->candidates(t, l);
          const CandidateSpans put = trace.candidates(t, l);
          EXPECT_EQ(got.experts.size(), has_weights ? std::min(experts, 6U) : 0U);
          EXPECT_TRUE(std::ranges::equal(got.experts, put.experts));
          EXPECT_TRUE(std::ranges::equal(got.scores, put.scores));
          EXPECT_TRUE(std::ranges::equal(got.raw, put.raw));
          EXPECT_TRUE(std::ranges::equal(got.ranges, put.ranges));
          ASSERT_EQ(read->weights(t, l).size(), has_weights ? 2U : 0U);
          for (size_t k = 0; k < read->weights(t, l).size(); ++k) {
            EXPECT_NEAR(read->weights(t, l)[k], trace.weights(t, l)[k], 0.5 / 65535);
          }
        }
      }
    }
  }
}

TEST_F(TraceTest, LittlePassesComeBackFromDisk) {
  for (const bool has_weights : {false, true}) {
    const Trace trace = Small(has_weights, 5, 1, 1);
    ASSERT_TRUE(WriteTrace(Path("t"), trace));
    const auto read = ReadTrace(Path("t"));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->info(), trace.info());
    ASSERT_EQ(read->tokens(), trace.tokens());
    for (size_t t = 0; t < trace.tokens(); ++t) {
      EXPECT_EQ(read->confidence(t), t == 0 ? 1.0F : 0.25F);
      for (size_t l = 0; l < 2; ++l) {
        ASSERT_EQ(read->little_experts(t, l).size(), 2U);
        EXPECT_EQ(read->little_experts(t, l)[0], trace.experts(t, l)[1]);
        EXPECT_EQ(read->little_experts(t, l)[1], trace.experts(t, l)[0]);
        ASSERT_EQ(read->little_weights(t, l).size(), has_weights ? 1U : 0U);
        if (!has_weights) continue;
        EXPECT_NEAR(read->little_weights(t, l)[0], l == 0 ? 0.75 : 0.25, 1e-4);
      }
      ASSERT_EQ(read->little_predicted(t, 0, 1).size(), 1U);
      EXPECT_EQ(read->little_predicted(t, 0, 1)[0], ExpertId{2});
      EXPECT_TRUE(read->little_predicted(t, 1, 1).empty());
      EXPECT_TRUE(read->experts(t, 1)[0] == trace.experts(t, 1)[0]);
    }
    const TraceSummary s = Summarise(*read);
    EXPECT_DOUBLE_EQ(s.little_recall, 1.0);
    EXPECT_DOUBLE_EQ(s.confident, 0.0);
    EXPECT_TRUE(Describe(read->info(), s).contains("little       a pass with 1 experts"));
  }
}

TEST_F(TraceTest, LittlePassesThatCannotBeAreRefused) {
  EXPECT_FALSE(Trace::Create({.model = {.shape = {1, 4, 2}}, .little = 2}));
  Trace trace = *Trace::Create({.model = {.shape = {1, 4, 2}}, .little = 1});
  const std::vector<ExpertId> experts = Ids({0, 1});
  const std::vector<ExpertId> twice = Ids({1, 1});
  EXPECT_FALSE(trace.Add({.experts = experts}));
  EXPECT_FALSE(trace.Add({.experts = experts, .little = {.experts = twice}}));
  for (const float confidence : {-0.5F, 1.5F, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_FALSE(
        trace.Add({.experts = experts, .little = {.experts = experts, .confidence = confidence}}));
  }
  EXPECT_TRUE(trace.Add({.experts = experts, .little = {.experts = experts, .confidence = 0.5F}}));
}

TEST_F(TraceTest, EveryTruncationAndEveryFlippedByteIsRefused) {
  for (const uint32_t little : {0U, 1U}) ExpectEveryDamageRefused(Small(little == 0, 5, 1, little));
}

void TraceTest::ExpectEveryDamageRefused(const Trace& trace) const {
  ASSERT_TRUE(WriteTrace(Path("t"), trace));
  const std::string whole = Bytes("t");
  for (size_t n = 0; n < whole.size(); ++n) {
    const auto read = ReadTrace(Put("cut", whole.substr(0, n)));
    ASSERT_FALSE(read) << n;
    EXPECT_EQ(read.error().code, Errc::kInvalidFile);
    EXPECT_NE(read.error().message.find("cut"), std::string::npos);
  }
  for (size_t n = 0; n < whole.size(); ++n) {
    for (const int mask : {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff}) {
      std::string flipped = whole;
      flipped[n] = static_cast<char>(flipped[n] ^ mask);
      const auto read = ReadTrace(Put("flipped", flipped));
      ASSERT_FALSE(read) << n;
      EXPECT_FALSE(read.error().message.contains('\n')) << read.error().message;
    }
  }
  EXPECT_FALSE(ReadTrace(Put("longer", whole + "x")));
}

// A correct checksum does not make wrong content right.
TEST_F(TraceTest, WrongContentIsRefusedWhateverItsChecksum) {
  ASSERT_TRUE(WriteTrace(Path("t"), Small(false, 5)));
  const std::string whole = Bytes("t");
  const size_t first_token = 60 + std::string("small").size();
  const auto with = [&](size_t at, char value) { return ErrorWith(whole, at, value); };
  EXPECT_EQ(with(first_token + 1, 0), "");
  EXPECT_TRUE(with(8, 2).contains("update")) << with(8, 2);
  EXPECT_TRUE(with(13, 16).contains("flags")) << with(13, 8);
  EXPECT_TRUE(with(13, 8).contains("layers whose experts tokens name")) << with(13, 8);
  EXPECT_TRUE(with(13, 1).contains("layers of an encoder")) << with(13, 1);
  EXPECT_TRUE(with(19, 127).contains("layers")) << with(19, 127);
  EXPECT_TRUE(with(55, 127).contains("bytes")) << with(55, 127);  // 2^62 tokens and more
  EXPECT_TRUE(with(first_token, 16).contains("kind 16")) << with(first_token, 16);
  EXPECT_TRUE(with(first_token, 9).contains("no encoder")) << with(first_token, 9);
  EXPECT_TRUE(with(first_token + 1, 5).contains("token 0: layer 0: expert 5 is out of range"));
  EXPECT_TRUE(with(first_token + 1, 1).contains("twice")) << with(first_token + 1, 1);
}

TEST_F(TraceTest, WeightsOfPredictionsAreNumbersAndAsManyAsThese) {
  auto trace =
      Trace::Create({.model = {.shape = {2, 4, 1}}, .depth = 1, .has_predicted_weights = true});
  ASSERT_TRUE(trace);
  const std::vector<ExpertId> experts = Ids({0, 1});
  const std::vector<ExpertId> predicted = Ids({2});
  constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& weights :
       std::vector<std::vector<float>>{{}, {0.1F, 0.2F}, {kNotANumber}}) {
    EXPECT_FALSE(
        trace->Add({.experts = experts, .predicted = predicted, .predicted_weights = weights}));
  }
  const std::vector<float> one = {0.5F};
  EXPECT_TRUE(trace->Add({.experts = experts, .predicted = predicted, .predicted_weights = one}));
  EXPECT_EQ(trace->token(0).predicted_weights.size(), 1U);
}

TEST_F(TraceTest, WrongLittlePassesAreRefusedWhateverTheChecksum) {
  ASSERT_TRUE(WriteTrace(Path("t"), Small(false, 5, 0, 1)));
  const std::string whole = Bytes("t");
  const size_t first_token = 64 + std::string("small").size();
  const auto with = [&](size_t at, char value) { return ErrorWith(whole, at, value); };
  EXPECT_EQ(with(first_token + 1, 0), "");
  EXPECT_TRUE(with(12, 0).contains("bytes")) << with(12, 0);  // without the flag
  EXPECT_TRUE(with(32, 0).contains("0 experts")) << with(32, 0);
  EXPECT_TRUE(with(32, 2).contains("little pass = 2")) << with(32, 2);
  // Of each layer 2 experts and 2 of the little pass.
  EXPECT_TRUE(with(first_token + 3, 5).contains("token 0: little pass, layer 0: expert 5"));
  EXPECT_TRUE(with(first_token + 4, 1).contains("twice")) << with(first_token + 4, 1);
  EXPECT_TRUE(with(first_token + 12, 0x7f).contains("probability"));
}

TEST_F(TraceTest, LayersWhoseExpertsTokensNameComeBack) {
  for (const uint32_t layers : {1U, 2U}) {
    const Trace trace = Small(true, 5, 1, 1, layers);
    ASSERT_TRUE(WriteTrace(Path("t"), trace));
    const auto read = ReadTrace(Path("t"));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->info(), trace.info());
    ASSERT_EQ(read->tokens(), trace.tokens());
    EXPECT_TRUE(std::ranges::equal(read->experts(2, 1), trace.experts(2, 1)));
    const std::string text = Describe(read->info(), Summarise(*read));
    EXPECT_TRUE(text.contains("the experts of the first " + std::to_string(layers) + " layer"))
        << text;
  }
  EXPECT_FALSE(Describe(Small(true, 5).info(), {}).contains("tokens name"));
  ExpectEveryDamageRefused(Small(false, 5, 0, 0, 1));
}

TEST_F(TraceTest, WrongNumbersOfThemAreRefusedWhateverTheChecksum) {
  ASSERT_TRUE(WriteTrace(Path("t"), Small(false, 5, 0, 0, 1)));
  const std::string whole = Bytes("t");
  const auto with = [&](size_t at, char value) { return ErrorWith(whole, at, value); };
  EXPECT_EQ(with(32, 2), "");  // both layers
  EXPECT_TRUE(with(32, 0).contains("0 layers name none")) << with(32, 0);
  EXPECT_TRUE(with(32, 3).contains("tokens name = 3, only 0 to 2")) << with(32, 3);
  EXPECT_TRUE(with(35, 127).contains("layers whose experts tokens name")) << with(35, 127);
  EXPECT_TRUE(with(13, 0).contains("bytes")) << with(13, 0);  // without the flag
}

TEST_F(TraceTest, WeightsAreClampedToWhatTheFileHolds) {
  Trace trace = *Trace::Create({.model = {.shape = {1, 4, 3}}, .has_weights = true});
  const std::vector<ExpertId> experts = Ids({0, 1, 2});
  const std::vector<float> weights = {2.5F, -1.0F, std::numeric_limits<float>::quiet_NaN()};
  ASSERT_TRUE(trace.Add({.experts = experts, .weights = weights}));
  ASSERT_TRUE(WriteTrace(Path("t"), trace));
  const auto read = ReadTrace(Path("t"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(std::ranges::equal(read->weights(0, 0), std::vector<float>{1.0F, 0.0F, 0.0F}));
}

TEST_F(TraceTest, NeverReplacesWhatIsNotAFile) {
  const Status folder = WriteTrace(folder_.path().string(), Small(false, 5));
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, Errc::kIo);
  EXPECT_TRUE(folder.error().message.contains("not a file")) << folder.error().message;
  EXPECT_FALSE(WriteTrace(Path("no/t"), Small(false, 5)));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(TraceTest, ForeignAndMissingFilesAreNamed) {
  const auto foreign = ReadTrace(Put("foreign", "GGUF and more of the like"));
  ASSERT_FALSE(foreign);
  EXPECT_NE(foreign.error().message.find("not a trace"), std::string::npos);
  const auto missing = ReadTrace(Path("nowhere"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::kIo);
}

TEST_F(TraceTest, AddRefusesWhatNoRouterChooses) {
  Trace trace = *Trace::Create({.model = {.shape = {1, 4, 2}}});
  for (const std::vector<uint16_t>& ids : {std::vector<uint16_t>{0}, {0, 0}, {0, 4}}) {
    const std::vector<ExpertId> experts = Ids(ids);
    EXPECT_FALSE(trace.Add({.experts = experts}));
  }
  EXPECT_EQ(trace.tokens(), 0U);
}

// As libllama's graphs of some families do.
TEST_F(TraceTest, AnExpertMayBeNamedTwiceWhereTheTraceSaysSo) {
  Trace trace =
      *Trace::Create({.model = {.shape = {1, 4, 2}}, .may_repeat = true, .has_prompt_steps = true});
  const std::vector<ExpertId> twice = Ids({3, 3});
  EXPECT_TRUE(trace.Add({.phase = Phase::kPrefill, .experts = twice}));
  EXPECT_TRUE(trace.Add({.phase = Phase::kPrefill, .joins_step = true, .experts = twice}));
  EXPECT_FALSE(trace.Add({.experts = Ids({0, 4})}));
  ASSERT_TRUE(WriteTrace(Path("t"), trace));
  const auto read = ReadTrace(Path("t"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(*read == trace);
}

// Experts that a router's groups exclude have no number for a score.
TEST_F(TraceTest, ScoresAreNumbersOrMinusInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
  Trace trace = *Trace::Create({.model = {.shape = {1, 4, 1}}, .has_candidates = true});
  const std::vector<ExpertId> experts = Ids({0});
  const std::vector<ExpertId> candidates = Ids({0, 2, 1});
  const auto add = [&](float last, float raw, float range) -> bool {
    const std::vector<float> scores = {1.5F, 0.5F, last};
    const std::vector<float> raws = {1.5F, 0.5F, raw};
    const std::vector<float> ranges = {range};
    return trace
        .Add({.experts = experts,
              .candidates =
                  {.experts = candidates, .scores = scores, .raw = raws, .ranges = ranges}})
        .has_value();
  };
  EXPECT_TRUE(add(-kInfinity, 0.25F, 1.0F));
  EXPECT_FALSE(add(kNotANumber, 0.25F, 1.0F));
  EXPECT_FALSE(add(kInfinity, 0.25F, 1.0F));
  EXPECT_FALSE(add(0.25F, -kInfinity, 1.0F));
  EXPECT_FALSE(add(0.25F, 0.25F, kInfinity));
  ASSERT_TRUE(WriteTrace(Path("t"), trace));
  const auto read = ReadTrace(Path("t"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(*read == trace);
}

TEST_F(TraceTest, CreateRefusesShapesThatCannotBe) {
  EXPECT_FALSE(Trace::Create({.model = {.shape = {0, 4, 2}}}));
  EXPECT_FALSE(Trace::Create({.model = {.shape = {1, 4, 5}}}));
  EXPECT_FALSE(Trace::Create({.model = {.shape = {1, 1U << 17, 2}}}));
  EXPECT_FALSE(Trace::Create({.model = {.shape = {2, 4, 2}}, .depth = 2}));
}

// 4 layers, 2 ahead: layers 0 and 1 predict two layers each, layer 2 one, layer 3 none.
// Layers 0 and 1 are an encoder's, 2 to 4 a decoder's; with predictions, weights and candidates.
TraceInfo WithEncoder() {
  return {.model = {.name = "pair",
                    .fingerprint = 7,
                    .shape = {.n_layer = 5, .n_expert = 8, .n_used = 1, .n_encoder = 2}},
          .depth = 2,
          .has_weights = true,
          .has_predicted_weights = true,
          .has_candidates = true};
}

// The rows of layers that a token does not go through are what no router says.
struct RowsOfPair {
  explicit RowsOfPair(bool is_source, uint16_t first) {
    const TraceInfo info = WithEncoder();
    const ExpertLayers layers = info.shape().layers_of(is_source);
    for (uint16_t l = 0; l < 5; ++l) {
      const bool is_there = layers.contains(l);
      experts.push_back({static_cast<uint16_t>(is_there ? (first + l) % 8 : 200)});
      for (uint16_t c = 0; c < 3; ++c) {
        candidates.push_back({static_cast<uint16_t>(is_there ? (first + l + c) % 8 : 9)});
      }
    }
    for (size_t l = 0; l < 5; ++l) {
      for (size_t i = info.predicted_rows_before(l); i < info.predicted_rows_before(l + 1); ++i) {
        predicted.push_back({static_cast<uint16_t>(layers.contains(l) ? i % 8 : 99)});
      }
    }
    weights.assign(5, 0.5F);
    ahead.assign(predicted.size(), 0.25F);
    scores.assign(candidates.size(), 1.0F);
    ranges.assign(5, 2.0F);
  }
  TraceToken Token(bool is_source, Phase phase = Phase::kPrefill) const {
    return {
        .phase = phase,
        .is_source = is_source,
        .experts = experts,
        .weights = weights,
        .predicted = predicted,
        .predicted_weights = ahead,
        .candidates = {.experts = candidates, .scores = scores, .raw = scores, .ranges = ranges}};
  }
  std::vector<ExpertId> experts;
  std::vector<ExpertId> candidates;
  std::vector<ExpertId> predicted;
  std::vector<float> weights;
  std::vector<float> ahead;
  std::vector<float> scores;
  std::vector<float> ranges;
};

Trace Pair(uint16_t sources = 6, uint16_t others = 4) {
  Trace trace = *Trace::Create(WithEncoder());
  for (uint16_t t = 0; t < sources; ++t) {
    EXPECT_TRUE(trace.Add(RowsOfPair(true, t).Token(true)));
  }
  for (uint16_t t = 0; t < others; ++t) {
    EXPECT_TRUE(
        trace.Add(RowsOfPair(false, t).Token(false, t == 0 ? Phase::kPrefill : Phase::kDecode)));
  }
  return trace;
}

TEST_F(TraceTest, TokensOfASourceGoThroughTheEncoderAlone) {
  const Trace trace = Pair();
  EXPECT_TRUE(trace.is_source(0));
  EXPECT_FALSE(trace.is_source(6));
  EXPECT_EQ(trace.layers_of(0).begin, 0U);
  EXPECT_EQ(trace.layers_of(0).end, 2U);
  EXPECT_EQ(trace.layers_of(9).begin, 2U);
  EXPECT_EQ(trace.layers_of(9).end, 5U);
  ASSERT_TRUE(WriteTrace(Path("pair.trace"), trace));
  const auto read = ReadTrace(Path("pair.trace"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->info(), trace.info());
  ASSERT_EQ(read->tokens(), trace.tokens());
  for (size_t t = 0; t < trace.tokens(); ++t) {
    EXPECT_EQ(read->is_source(t), trace.is_source(t));
    const ExpertLayers layers = trace.layers_of(t);
    for (size_t l = layers.begin; l < layers.end; ++l) {
      EXPECT_TRUE(std::ranges::equal(read->experts(t, l), trace.experts(t, l)));
      EXPECT_TRUE(std::ranges::equal(read->predicted(t, l, 1), trace.predicted(t, l, 1)));
      EXPECT_TRUE(
          std::ranges::equal(read->candidates(t, l).experts, trace.candidates(t, l).experts));
    }
  }
  ExpectEveryDamageRefused(Pair(1, 1));
}

TEST_F(TraceTest, ASourceIsOfAnEncoderAndDoesNotDecode) {
  Trace trace = *Trace::Create(WithEncoder());
  EXPECT_FALSE(trace.Add(RowsOfPair(true, 0).Token(true, Phase::kDecode)));
  EXPECT_FALSE(trace.Add(RowsOfPair(true, 0).Token(false)));  // rows that no router says
  EXPECT_FALSE(trace.Add(RowsOfPair(false, 0).Token(true)));
  TraceInfo alone = WithEncoder();
  alone.model.shape.n_encoder = 0;
  Trace without = *Trace::Create(alone);
  const Status refused = without.Add(RowsOfPair(true, 0).Token(true));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("no encoder"), std::string::npos);
  alone.model.shape.n_encoder = 5;
  EXPECT_FALSE(Trace::Create(alone));
}

TEST_F(TraceTest, SummaryCountsTheLayersThatTokensGoThrough) {
  const TraceSummary summary = Summarise(Pair());
  // 6 sources x 2 layers, 4 others x 3: of each layer's uses its most popular expert has 1.
  EXPECT_DOUBLE_EQ(summary.popular_share, 5.0 / 24.0);
  EXPECT_EQ(summary.prefill_tokens, 7U);
  EXPECT_EQ(summary.decode_tokens, 3U);
  // Layers of 6 and of 4 different experts in as many tokens.
  EXPECT_NEAR(summary.entropy, (2 * std::log(6.0) + 3 * std::log(4.0)) / 5 / std::log(8.0), 1e-12);
  const std::string text = Describe(WithEncoder(), summary);
  EXPECT_NE(text.find("5 layers (2 of them an encoder's)"), std::string::npos) << text;
  EXPECT_NE(text.find("3 experts per token"), std::string::npos) << text;
}

TEST_F(TraceTest, PredictionsEndAtTheLastLayer) {
  const TraceInfo info{.model = {.shape = {4, 9, 1}}, .depth = 2};
  ASSERT_EQ(info.predicted_rows(), 5U);
  Trace trace = *Trace::Create(info);
  const std::vector<ExpertId> experts = Ids({0, 1, 2, 3});
  const std::vector<ExpertId> predicted = Ids({4, 5, 6, 7, 8});
  for (int t = 0; t < 2; ++t) {
    ASSERT_TRUE(trace.Add({.experts = experts, .predicted = predicted}));
  }
  const auto at = [&](size_t layer, size_t distance) {
    const auto row = trace.predicted(1, layer, distance);
    return row.empty() ? -1 : int{row[0].value};
  };
  EXPECT_EQ(at(0, 1), 4);
  EXPECT_EQ(at(0, 2), 5);
  EXPECT_EQ(at(1, 1), 6);
  EXPECT_EQ(at(1, 2), 7);
  EXPECT_EQ(at(2, 1), 8);
  EXPECT_EQ(at(2, 2), -1);
  EXPECT_EQ(at(3, 1), -1);
  EXPECT_EQ(at(0, 0), -1);
  EXPECT_EQ(at(0, 3), -1);
}

TEST_F(TraceTest, ImportsJsonLines) {
  const auto trace = ImportJsonl(
      Put("a.jsonl", "{\"tok\":1,\"layers\":[[0,2],[1,3]]}\n\n{\"layers\":[[2,1],[0,1]]}\n"), {});
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->tokens(), 2U);
  EXPECT_EQ(trace->info().shape().n_expert, 4U);
  EXPECT_TRUE(trace->info().experts_guessed);
  EXPECT_EQ(trace->info().shape().n_layer, 2U);
  EXPECT_TRUE(trace->starts_sequence(0));
  EXPECT_FALSE(trace->starts_sequence(1));
  EXPECT_EQ(trace->experts(1, 0)[0].value, 2);
}

TEST_F(TraceTest, ImportNamesTheLine) {
  const std::string good = "{\"layers\":[[0,2],[1,3]]}\n";
  EXPECT_NE(ImportError(good + "{").find("line 2"), std::string::npos);
  EXPECT_NE(ImportError(good + "{\"layers\":[[0,2]]}").find("line 2"), std::string::npos);
  EXPECT_NE(ImportError("{\"layers\":[[0,2],[1]]}").find("layer 1"), std::string::npos);
  EXPECT_NE(ImportError("{\"layers\":[[0,-2]]}").find("line 1"), std::string::npos);
  EXPECT_NE(ImportError("{\"layers\":[[0,9]]}").find("out of range"), std::string::npos);
  EXPECT_NE(ImportError("{\"layers\":[[1,1]]}").find("twice"), std::string::npos);
  EXPECT_NE(ImportError("").find("no line"), std::string::npos);
  EXPECT_NE(ImportError(std::string(100000, '[')).find("line 1"), std::string::npos);
  EXPECT_NE(ImportError("{\"layers\":" + std::string(100000, '[') + std::string(100000, ']') + "}")
                .find("nested"),
            std::string::npos);
}

// Two layers, one of 8 experts used: layer 0 goes 0 1 0 1 ..., layer 1 follows with 2 3 2 3 ...
TEST_F(TraceTest, SummaryOfAKnownTrace) {
  Trace trace = *Trace::Create({.model = {.shape = {2, 8, 1}}, .depth = 1});
  for (uint16_t t = 0; t < 200; ++t) {
    const auto odd = static_cast<uint16_t>(t % 2);
    const std::vector<ExpertId> experts = Ids({odd, static_cast<uint16_t>(2 + odd)});
    const std::vector<ExpertId> predicted = Ids({2});  // right every other time
    ASSERT_TRUE(trace.Add({.starts_sequence = t == 0, .experts = experts, .predicted = predicted}));
  }
  const TraceSummary s = Summarise(trace);
  EXPECT_EQ(s.decode_tokens, 200U);
  EXPECT_EQ(s.sequences, 1U);
  EXPECT_DOUBLE_EQ(s.popular_share, 0.5);
  EXPECT_DOUBLE_EQ(s.distinct_per_100, 4.0);
  EXPECT_DOUBLE_EQ(s.reused_next, 0.0);
  EXPECT_DOUBLE_EQ(s.reuse_p50, 2.0);
  EXPECT_DOUBLE_EQ(s.recall_paths, 1.0);
  EXPECT_DOUBLE_EQ(s.recall_popular, 0.5);
  EXPECT_DOUBLE_EQ(s.recall_repeat, 0.0);
  EXPECT_DOUBLE_EQ(s.entropy, 1.0 / 3.0);  // two of eight, equally often
  EXPECT_EQ(s.recall_ahead, std::vector<double>{0.5});
  EXPECT_TRUE(Describe(trace.info(), s).contains("50.0 % 1 layer ahead"));
}

}  // namespace
}  // namespace moestro
