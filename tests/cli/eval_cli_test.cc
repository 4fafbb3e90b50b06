// SPDX-License-Identifier: MIT
// `moestro eval` and `logits --every` from outside: figures against the same computed here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/distribution.h"
#include "base/json.h"
#include "base/text.h"
#include "tests/cli/program_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::kDemo;
using testing::NumberAt;
using testing::Program;

constexpr std::string_view kStory =
    "Once upon a time, there was a little dog named Max. Max liked to run in the park with his "
    "friend Lily. One day they found a big red ball under a tree. \"Look!\" said Lily. \"Can we "
    "play with it?\" Max wagged his tail and barked. They played until the sun went down and then "
    "they went home, tired and happy. The next day a boy came to the park and looked for his ball. "
    "Lily gave it back and the boy smiled. They all became good friends.";

using Matrix = std::vector<std::vector<float>>;

class EvalTest : public ::testing::Test {
 protected:
  EvalTest() { Write("story.txt", kStory); }

  std::string Write(const std::string& name, std::string_view bytes) const {
    std::ofstream(folder_.File(name), std::ios::binary) << bytes;
    return folder_.File(name);
  }
  Finished Run(std::vector<std::string> arguments) const {
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  Json RunJson(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"-t", "1"});
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    auto json = Json::Parse(run.out);
    EXPECT_TRUE(json) << run.out;
    return json ? *std::move(json) : Json::Object();
  }
  Json Eval(const std::string& model, std::vector<std::string> more) const {
    more.insert(more.begin(), {"eval", model, "--text", folder_.File("story.txt"), "--json"});
    return RunJson(std::move(more));
  }
  void ExpectError(std::vector<std::string> arguments, int exit_code,
                   const std::string& part) const {
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
    EXPECT_NE(run.err.find(part), std::string::npos) << "wanted " << part << "\n" << run.err;
    EXPECT_EQ(run.out, "");
  }
  std::vector<int> TokensOf(const Json& json) const {
    std::vector<int> tokens;
    const JsonView list = *json.Find("tokens");
    for (size_t i = 0; i < list.size(); ++i) {
      tokens.push_back(static_cast<int>(list.At(i)->number().value()));
    }
    return tokens;
  }
  // Logits after each of these tokens, as a file has them.
  Matrix Every(const std::string& model, std::vector<std::string> input,
               std::vector<std::string> more = {"--decode"}) const {
    std::vector<std::string> arguments = {"logits", model, "--every", "-o", folder_.File("f32")};
    arguments.insert(arguments.end(), input.begin(), input.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Json said = RunJson(std::move(arguments));
    const auto rows = static_cast<size_t>(said.Find("rows")->number().value());
    const auto columns = static_cast<size_t>(said.Find("columns")->number().value());
    const std::string bytes = ReadAll(folder_.File("f32"));
    EXPECT_EQ(bytes.size(), rows * columns * sizeof(float));
    Matrix matrix(rows, std::vector<float>(columns));
    for (size_t i = 0; i < rows; ++i) {
      std::memcpy(matrix[i].data(), bytes.data() + i * columns * sizeof(float),
                  columns * sizeof(float));
    }
    return matrix;
  }
  TempFolder folder_;
};

// In double all the way.
std::vector<double> LogProbs(const std::vector<float>& logits) {
  double sum = 0.0;
  const double most = std::ranges::max(logits);
  for (const float x : logits) sum += std::exp(x - most);
  std::vector<double> out;
  for (const float x : logits) out.push_back(x - most - std::log(sum));
  return out;
}

size_t Best(const std::vector<double>& row) {
  return static_cast<size_t>(std::ranges::max_element(row) - row.begin());
}

// What eval reports, from two rows of logits for each position.
struct Recomputed {
  std::vector<double> kl;
  double nll = 0.0;
  double exact_nll = 0.0;
  double squared_delta = 0.0;
  double equal = 0.0;

  void Add(const std::vector<float>& lossy, const std::vector<float>& exact, int next) {
    const std::vector<double> q = LogProbs(lossy);
    const std::vector<double> p = LogProbs(exact);
    double sum = 0.0;
    for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
    kl.push_back(sum);
    const auto at = static_cast<size_t>(next);
    nll -= q[at];
    exact_nll -= p[at];
    squared_delta += std::pow(std::exp(q[at]) - std::exp(p[at]), 2.0);
    equal += Best(p) == Best(q) ? 1.0 : 0.0;
  }
};

// Windows of 40 tokens, each a new sequence; the last token of each is not followed by one.
TEST_F(EvalTest, FiguresAreThoseOfTheLogitsOfTwoRuns) {
  constexpr size_t kWindow = 40;
  // Half of the experts, always.
  const std::vector<std::string> half = {"--little", "half", "--gamma", "0"};
  const std::vector<int> tokens =
      TokensOf(RunJson({"logits", kDemo, "-p", std::string(kStory), "--top", "1"}));
  ASSERT_GT(tokens.size(), 2 * kWindow + 1);
  Recomputed expected;
  for (size_t begin = 0; begin < tokens.size(); begin += kWindow) {
    const size_t n = std::min(kWindow, tokens.size() - begin);
    std::string list;
    for (size_t i = 0; i < n; ++i) list += Format("{}{}", i > 0 ? "," : "", tokens[begin + i]);
    const Matrix lossy = Every(kDemo, {"--tokens", list, half[0], half[1], half[2], half[3]});
    const Matrix exact = Every(kDemo, {"--tokens", list});
    for (size_t i = 0; i + 1 < n; ++i) expected.Add(lossy[i], exact[i], tokens[begin + i + 1]);
  }
  const auto n = static_cast<double>(expected.kl.size());
  double kl_sum = 0.0;
  for (const double kl : expected.kl) kl_sum += kl;

  const std::vector<std::string> same = {"-c",    "40",          "--against",
                                         "exact", "--reference", folder_.File("rows")};
  const Json written = Eval(kDemo, same);
  EXPECT_EQ(NumberAt(written, "kl_max"), 0.0);
  std::vector<std::string> lossy = same;
  lossy.append_range(half);
  const Json json = Eval(kDemo, lossy);
  EXPECT_EQ(NumberAt(json, "tokens"), n);
  EXPECT_GT(NumberAt(json, "kl_mean"), 1e-4);
  EXPECT_LT(NumberAt(json, "top1_agreement"), 1.0);
  // Log-probabilities are rounded to F32 once: 1e-6 of one that is near 10.
  EXPECT_NEAR(NumberAt(json, "perplexity"), std::exp(expected.nll / n), 1e-4);
  EXPECT_NEAR(NumberAt(json, "exact_perplexity"), std::exp(expected.exact_nll / n), 1e-4);
  EXPECT_NEAR(NumberAt(json, "kl_mean"), kl_sum / n, 1e-6);
  EXPECT_NEAR(NumberAt(json, "kl_max"), std::ranges::max(expected.kl), 1e-6);
  EXPECT_NEAR(NumberAt(json, "kl_p99"), Quantile(expected.kl, 0.99), 1e-6);
  EXPECT_NEAR(NumberAt(json, "kl_p999"), Quantile(expected.kl, 0.999), 1e-6);
  EXPECT_NEAR(NumberAt(json, "delta_p_rms"), std::sqrt(expected.squared_delta / n), 1e-6);
  EXPECT_NEAR(NumberAt(json, "top1_agreement"), expected.equal / n, 1e-12);
}

TEST_F(EvalTest, ExactAgainstExactIsZeroToTheBitAndLeavesNothing) {
  const TempFolder scratch;
  const std::vector<std::string> arguments = {
      "--against", "exact", "--scratch",  scratch.path().string(),
      "--cache",   "25%",   "--prefetch", "0"};
  const Json json = Eval(kDemo, arguments);
  for (const char* key : {"kl_mean", "kl_se", "kl_p99", "kl_p99_se", "kl_p999", "kl_p999_se",
                          "kl_max", "delta_p_rms", "delta_p_rms_se", "top1_agreement_se"}) {
    EXPECT_EQ(NumberAt(json, key), 0.0) << key;
  }
  EXPECT_EQ(NumberAt(json, "top1_agreement"), 1.0);
  EXPECT_EQ(NumberAt(json, "perplexity"), NumberAt(json, "exact_perplexity"));
  EXPECT_GT(NumberAt(json, "perplexity_se"), 0.0);
  for (const char* key :
       {"decode_tps", "percent_of_bound", "bytes_per_token", "hit_rate", "disk_bytes_decode"}) {
    EXPECT_GT(NumberAt(json, key), 0.0) << key;
  }
  EXPECT_TRUE(scratch.is_empty());
  // Without prefetch what is asked for is what is needed, and the same each time.
  EXPECT_EQ(NumberAt(json, "bytes_per_token") * NumberAt(json, "decode_tokens"),
            NumberAt(json, "needed_bytes_decode"));
  EXPECT_EQ(NumberAt(Eval(kDemo, arguments), "bytes_per_token"), NumberAt(json, "bytes_per_token"));
}

TEST_F(EvalTest, PerplexityIsThatOfTheLogits) {
  const Json json = Eval(kDemo, {});
  EXPECT_FALSE(json.Find("kl_mean").has_value());
  const Matrix logits = Every(kDemo, {"-p", std::string(kStory)});
  const std::vector<int> tokens =
      TokensOf(RunJson({"logits", kDemo, "-p", std::string(kStory), "--top", "1"}));
  ASSERT_EQ(logits.size(), tokens.size());
  double nll = 0.0;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    nll -= LogProbs(logits[i])[static_cast<size_t>(tokens[i + 1])];
  }
  EXPECT_EQ(NumberAt(json, "tokens"), static_cast<double>(tokens.size() - 1));
  EXPECT_EQ(NumberAt(json, "windows"), 1.0);
  EXPECT_NEAR(NumberAt(json, "perplexity"), std::exp(nll / static_cast<double>(tokens.size() - 1)),
              1e-4);
  // Evaluated together they agree but for the order of additions.
  const Matrix together = Every(kDemo, {"-p", std::string(kStory)}, {});
  ASSERT_EQ(together.size(), logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    for (size_t j = 0; j < 100; ++j) EXPECT_NEAR(together[i][j], logits[i][j], 0.05);
  }
}

TEST_F(EvalTest, TokensAndPositionsCanBeLimited) {
  const auto counts = [&](std::vector<std::string> more) {
    const Json json = Eval(kDemo, std::move(more));
    return std::vector{NumberAt(json, "tokens"), NumberAt(json, "windows"),
                       NumberAt(json, "decode_tokens")};
  };
  EXPECT_EQ(counts({"-c", "32", "--tokens", "40"}), (std::vector{40.0, 2.0, 40.0}));
  EXPECT_EQ(counts({"-c", "32", "--tokens", "31"}), (std::vector{31.0, 1.0, 31.0}));
  // 15 of each window are scored, those before are only decoded.
  EXPECT_EQ(counts({"-c", "32", "--tokens", "30", "--score-from", "16"}),
            (std::vector{30.0, 2.0, 62.0}));
  EXPECT_EQ(counts({"-c", "32", "--tokens", "16", "--score-from", "16"}),
            (std::vector{16.0, 2.0, 31.0 + 17.0}));
  // A second text begins a window of its own.
  EXPECT_EQ(counts({"--text", Write("short.txt", "The dog ran.")})[1], 2.0);
}

TEST_F(EvalTest, WhatCannotWorkSaysWhy) {
  const std::string story = folder_.File("story.txt");
  ExpectError({"eval", kDemo}, 2, "--text");
  ExpectError({"eval", kDemo, "--text", story, "--against", "fast"}, 1, "fast");
  ExpectError({"eval", kDemo, "--text", story, "--scratch", "/tmp"}, 2, "--against");
  ExpectError({"eval", kDemo, "--text", story, "--tokens", "0"}, 2, "--tokens");
  ExpectError({"eval", folder_.File("none.gguf"), "--text", story}, 1, "none.gguf");
  ExpectError({"eval", kDemo, "--text", folder_.File("none.txt")}, 1, "none.txt");
  ExpectError({"eval", kDemo, "--text", Write("bad.txt", "a\xff")}, 1, "UTF-8");
  ExpectError({"eval", kDemo, "--text", Write("empty.txt", "")}, 1, "longer text");
  ExpectError({"eval", kDemo, "--text", story, "--score-from", "255"}, 1, "context of 256");
  ExpectError({"eval", kDemo, "--text", story, "--ctx", "1"}, 1, "--ctx");
  ExpectError({"eval", kDemo, "--text", story, "--ram", "10M"}, 1, "raise --ram");
  ExpectError(
      {"eval", kDemo, "--text", story, "--against", "exact", "--scratch", folder_.File("no")}, 1,
      folder_.File("no"));
  ExpectError({"eval", kDemo, "--text", story, "--against", "exact", "--scratch", story}, 1,
              "no folder");
  ExpectError({"logits", kDemo, "--tokens", "1", "--every"}, 2, "-o FILE");
  ExpectError({"logits", kDemo, "--tokens", "1", "-o", folder_.File("x")}, 2, "--every");
  ExpectError({"logits", kDemo, "--tokens", "1", "--every", "-o", folder_.File("no/x")}, 1, "no");
}

TEST_F(EvalTest, AFolderInMemoryMustBeAskedFor) {
  const fs::path memory = "/dev/shm";
  if (!fs::is_directory(memory)) GTEST_SKIP() << "no /dev/shm here";
  std::optional<TempFolder> folder;
  folder.emplace(memory);
  const std::string text = folder->File("story.txt");
  std::ofstream(text) << kStory;
  const std::vector<std::string> arguments = {"eval", kDemo,      "--text", text,        "-t",
                                              "1",    "--tokens", "8",      "--against", "exact"};
  ExpectError(arguments, 1, "--scratch");
  std::vector<std::string> asked = arguments;
  asked.insert(asked.end(), {"--scratch", folder->path().string(), "--json"});
  const Finished run = Run(asked);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  fs::remove(text);
  EXPECT_TRUE(folder->is_empty());
}

TEST_F(EvalTest, ASweepIsATableAndADrawing) {
  const std::string plot = folder_.File("sweep.svg");
  const Finished run = Run({"eval", kDemo, "--text", folder_.File("story.txt"), "--tokens", "20",
                            "-t", "1", "--sweep", "cache=25%,50%;prefetch=0", "--plot", plot});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(std::ranges::count(run.out, '\n'), 3) << run.out;
  EXPECT_TRUE(run.out.starts_with("cache,prefetch,tokens,")) << run.out;
  EXPECT_NE(run.out.find("\n50%,0,20,"), std::string::npos) << run.out;
  EXPECT_NE(ReadAll(plot).find("cache=25% prefetch=0"), std::string::npos);
  const auto sweep = [&](const std::string& knobs) {
    return std::vector<std::string>{"eval",     kDemo, "--text", folder_.File("story.txt"),
                                    "--tokens", "8",   "-t",     "1",
                                    "--sweep",  knobs};
  };
  ExpectError(sweep("speed=1"), 2, "known are ram, cache, kv-type");
  std::vector<std::string> json = sweep("cache=25%");
  json.emplace_back("--json");
  ExpectError(json, 2, "--json");
  ExpectError({"eval", kDemo, "--text", "x", "--plot", plot}, 2, "--sweep");
  // What was measured before a setting that cannot work is not lost.
  const Finished partial = Run(sweep("cache=25%,1"));
  EXPECT_EQ(partial.exit_code, 1);
  EXPECT_EQ(std::ranges::count(partial.out, '\n'), 2) << partial.out;
  EXPECT_NE(partial.err.find("cache=1: "), std::string::npos) << partial.err;
  // Nor does the exact run's file stay, which went beside the text.
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("moestro-eval")) << entry.path();
  }
}

TEST_F(EvalTest, AReferenceIsForOneTextAndModel) {
  const std::string rows = folder_.File("rows");
  const auto arguments = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"eval", kDemo, "--text", folder_.File("story.txt"), "-t", "1",
                               "--against", "exact", "--reference", rows});
    return more;
  };
  EXPECT_EQ(Run(arguments({"--tokens", "20"})).exit_code, 0);
  ExpectError(arguments({"--tokens", "21"}), 1, "another text");
  ExpectError(arguments({"--tokens", "20", "-c", "64"}), 1, "another context");
  std::string bytes = ReadAll(rows);
  bytes[100] ^= 1;
  Write("rows", bytes);
  ExpectError(arguments({"--tokens", "20"}), 1, "checksum");
  bytes.resize(bytes.size() / 2);
  Write("rows", bytes);
  ExpectError(arguments({"--tokens", "20"}), 1, "ends at byte");
  Write("rows", "noise");
  ExpectError(arguments({"--tokens", "20"}), 1, "not a reference");
}

}  // namespace
}  // namespace moestro
