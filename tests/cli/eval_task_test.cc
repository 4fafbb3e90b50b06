// SPDX-License-Identifier: MIT
// `moestro eval --task` from outside, on a few questions of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/cli/program_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::kDemo;
using testing::NumberAt;
using testing::Program;

const std::string kHead = "Type,Question,Best Answer,Incorrect Answers\n";

class EvalTaskTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, std::string_view bytes) const {
    std::ofstream(folder_.File(name), std::ios::binary) << bytes;
    return folder_.File(name);
  }
  Finished Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"-t", "1"});
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  Json RunJson(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    auto json = Json::Parse(run.out);
    EXPECT_TRUE(json) << run.out;
    return json ? *std::move(json) : Json::Object();
  }
  void ExpectError(std::vector<std::string> arguments, int exit_code,
                   const std::string& part) const {
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
    EXPECT_NE(run.err.find(part), std::string::npos) << "wanted " << part << "\n" << run.err;
  }
  std::vector<int> TokensOf(const std::string& text) const {
    const Json json = RunJson({"logits", kDemo, "-p", text, "--top", "1"});
    std::vector<int> tokens;
    for (size_t i = 0; i < json.Find("tokens")->size(); ++i) {
      tokens.push_back(static_cast<int>(json.Find("tokens")->At(i)->number().value()));
    }
    return tokens;
  }
  // Of what `text` has beyond `prompt`, from the logits after each token.
  double LogProbOf(const std::string& prompt, const std::string& text) const {
    const std::string file = folder_.File("f32");
    RunJson({"logits", kDemo, "-p", text, "--every", "--decode", "-o", file});
    const std::vector<int> tokens = TokensOf(text);
    const std::vector<int> before = TokensOf(prompt);
    const auto begin = std::ranges::mismatch(before, tokens).in1 - before.begin();
    const std::string bytes = ReadAll(file);
    const size_t columns = bytes.size() / tokens.size() / sizeof(float);
    double sum = 0.0;
    for (auto i = static_cast<size_t>(begin); i < tokens.size(); ++i) {
      std::vector<float> row(columns);
      std::memcpy(row.data(), bytes.data() + (i - 1) * columns * sizeof(float),
                  columns * sizeof(float));
      double all = 0.0;
      for (const float x : row) all += std::exp(double{x});
      sum += row[static_cast<size_t>(tokens[i])] - std::log(all);
    }
    return sum;
  }
  // The demo model with the text of one token, which begins with a space, replaced by another of
  // the same length; nullopt: there is no such token.
  std::optional<std::string> WithWord(std::string_view word, std::string_view other) const {
    const auto token = [](std::string_view text) {
      const std::string spelled = "\xc4\xa0" + std::string(text);  // a space, as GPT-2 spells it
      const uint64_t length = spelled.size();
      std::string bytes(sizeof(length), '\0');
      std::memcpy(bytes.data(), &length, sizeof(length));
      return bytes + spelled;
    };
    std::string model = ReadAll(kDemo);
    const size_t at = model.find(token(word));
    if (at == std::string::npos) return std::nullopt;
    const std::string written = token(other);
    model.replace(at, written.size(), written);
    return Write("numbers.gguf", model);
  }

  TempFolder folder_;
};

TEST_F(EvalTaskTest, AnswersAreJudgedByTheirLogProbability) {
  const std::string csv =
      Write("q.csv", kHead +
                         "a,What did the dog do?,The dog ran home.,Purple \"no\n"
                         "a,Where did she go?,\"To the park, to play\",Xyzzy qwfp;To the moon\n"
                         "a,What did he say?,Zzz vvv kkk,He said hello.\n"
                         "a,Who was sad?,The girl,The boy;A cat;A spoon\n"
                         "a,Why?,Because,\"" +
                         std::string("It was very long ago. ") + "\"\n");
  const std::string fixed = Write("fixed.csv", [&] {
    std::string text = ReadAll(csv);
    text.replace(text.find("Purple \"no"), 10, "Purple no.");
    return text;
  }());
  ExpectError({"eval", kDemo, "--task", "truthfulqa", csv}, 1, "q.csv:2: a quote inside");
  const Json json = RunJson(
      {"eval", kDemo, "--task", "truthfulqa", fixed, "--against", "exact", "--cache", "50%"});
  ASSERT_EQ(NumberAt(json, "items"), 5.0);
  const JsonView outcomes = *json.Find("outcomes");
  const std::string prompt = "Q: Where did she go?\nA:";
  const std::vector<std::string> answers = {" To the park, to play", " Xyzzy qwfp", " To the moon"};
  const JsonView sums = *outcomes.At(1)->Find("log_probs");
  ASSERT_EQ(sums.size(), answers.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    // The prompt is evaluated at once here and token by token there.
    EXPECT_NEAR(sums.At(i)->number().value(), LogProbOf(prompt, prompt + answers[i]), 0.02);
  }
  // Plain words are likelier than nonsense, whichever is called the best answer.
  EXPECT_EQ(outcomes.At(2)->Find("answer")->text(), "1");
  EXPECT_EQ(outcomes.At(2)->Find("right")->Dump(), "false");
  double right = 0.0;
  for (size_t i = 0; i < 5; ++i) {
    const JsonView log_probs = *outcomes.At(i)->Find("log_probs");
    bool is_best = true;
    for (size_t j = 1; j < log_probs.size(); ++j) {
      is_best = is_best && log_probs.At(0)->number() > log_probs.At(j)->number();
    }
    EXPECT_EQ(outcomes.At(i)->Find("right")->Dump(), is_best ? "true" : "false");
    right += is_best ? 1.0 : 0.0;
  }
  EXPECT_EQ(NumberAt(json, "right"), right);
  EXPECT_EQ(NumberAt(json, "score"), right / 5.0);
  EXPECT_LT(NumberAt(json, "score_low"), right / 5.0);
  EXPECT_GT(NumberAt(json, "score_high"), right / 5.0);
  // Against itself nothing flips.
  EXPECT_EQ(NumberAt(json, "exact_score"), right / 5.0);
  EXPECT_EQ(NumberAt(json, "changed_answers"), 0.0);
  EXPECT_EQ(NumberAt(json, "mcnemar_p"), 1.0);
  EXPECT_GT(NumberAt(json, "decode_tps"), 0.0);
}

TEST_F(EvalTaskTest, WhatDoesNotFitIsCountedAndShotsAreNotAsked) {
  std::string text = kHead;
  for (int i = 0; i < 5; ++i) text += "a,What is it?,A dog,A cat\n";
  std::string longest;
  for (int i = 0; i < 300; ++i) longest += "very ";
  text += "a,What is it?,A dog,A " + longest + "long cat\n";
  const std::string csv = Write("q.csv", text);
  const auto counts = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"eval", kDemo, "--task", "truthfulqa", csv});
    const Json json = RunJson(std::move(more));
    return std::pair(NumberAt(json, "items"), NumberAt(json, "too_long"));
  };
  EXPECT_EQ(counts({}), std::pair(5.0, 1.0));
  EXPECT_EQ(counts({"--shots", "2"}), std::pair(3.0, 1.0));
  EXPECT_EQ(counts({"--shots", "2", "--limit", "2"}), std::pair(2.0, 0.0));
  ExpectError({"eval", kDemo, "--task", "truthfulqa", csv, "--shots", "6"}, 1, "6 shots");
  ExpectError({"eval", kDemo, "--task", "truthfulqa", csv, "-c", "4"}, 1, "context of 4");
  // A shot stands before the question as it would be answered.
  const Json one =
      RunJson({"eval", kDemo, "--task", "truthfulqa", csv, "--shots", "1", "--limit", "1"});
  const std::string prompt = "Q: What is it?\nA: A dog\n\nQ: What is it?\nA:";
  const JsonView sums = *one.Find("outcomes")->At(0)->Find("log_probs");
  EXPECT_NEAR(sums.At(1)->number().value(), LogProbOf(prompt, prompt + " A cat"), 0.02);
}

// The demo model writes no numbers, so one of the words that it does write is made to read as one.
TEST_F(EvalTaskTest, TheNumberThatIsWrittenCounts) {
  const std::string question = "There was a girl. Answer: there was a girl.";
  const Finished said = Run({"run", kDemo, "-p", "Question: " + question + "\nAnswer:", "--temp",
                             "0", "-n", "24", "--no-display-prompt", "--no-perf"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  std::optional<std::string> model;
  std::string digits;
  for (size_t at = said.out.find(' '); at != std::string::npos && !model;) {
    const size_t end = said.out.find_first_not_of("abcdefghijklmnopqrstuvwxyz", at + 1);
    const std::string word = said.out.substr(at + 1, end - at - 1);
    digits = std::string("98765432").substr(0, word.size());
    if (word.size() > 2 && word.size() < 9 && !question.contains(word)) {
      model = WithWord(word, digits);
    }
    at = said.out.find(' ', at + 1);
  }
  ASSERT_TRUE(model.has_value()) << said.out;
  const auto line = [&](const std::string& number) {
    return "{\"question\": \"" + question + "\", \"answer\": \"So it is.\\n#### " + number +
           "\"}\n";
  };
  const std::string items = Write("q.jsonl", line(digits) + line("1" + digits));
  const Json json = RunJson(
      {"eval", *model, "--task", "gsm8k", items, "--answer-tokens", "24", "--against", "exact"});
  const JsonView outcomes = *json.Find("outcomes");
  ASSERT_EQ(outcomes.size(), 2U);
  EXPECT_EQ(outcomes.At(0)->Find("answer")->text(), digits) << said.out;
  EXPECT_EQ(outcomes.At(0)->Find("right")->Dump(), "true");
  EXPECT_EQ(outcomes.At(1)->Find("right")->Dump(), "false");
  EXPECT_EQ(NumberAt(json, "score"), 0.5);
  EXPECT_EQ(NumberAt(json, "flips_to_right") + NumberAt(json, "flips_to_wrong"), 0.0);
  // Room for the answer is part of what has to fit.
  ExpectError({"eval", *model, "--task", "gsm8k", items, "--answer-tokens", "256"}, 1,
              "none of 2 items fits");
  const Finished text = Run({"eval", *model, "--task", "gsm8k", items, "--answer-tokens", "24"});
  EXPECT_NE(text.out.find("50.0 % (95 % of cases: "), std::string::npos) << text.out;
}

TEST_F(EvalTaskTest, WhatCannotWorkSaysWhy) {
  const std::string csv = Write("q.csv", kHead + "a,Why?,Because,No\n");
  ExpectError({"eval", kDemo, "--task", "chess", csv}, 2, "truthfulqa, gsm8k");
  ExpectError({"eval", kDemo, "--task", "truthfulqa"}, 2, "a name and a file");
  ExpectError({"eval", kDemo, csv, "--text", csv}, 2, "a name and a file");
  ExpectError({"eval", kDemo, "--task", "truthfulqa", csv, "--text", csv}, 2, "--task");
  ExpectError({"eval", kDemo, "--text", csv, "--shots", "1"}, 2, "--task");
  ExpectError({"eval", kDemo, "--task", "gsm8k", csv}, 1, "q.csv:1: ");
  ExpectError({"eval", kDemo, "--task", "gsm8k", folder_.File("none")}, 1, "none");
  ExpectError({"eval", kDemo, "--task", "truthfulqa", Write("e.csv", "")}, 1, "'Question'");
  ExpectError({"eval", kDemo, "--task", "truthfulqa", Write("h.csv", kHead)}, 1, "0 items");
  ExpectError({"eval", kDemo, "--task", "truthfulqa", Write("b.csv", "\xff\xfe")}, 1, "UTF-8");
  ExpectError({"eval", folder_.File("none.gguf"), "--task", "truthfulqa", csv}, 1, "none.gguf");
}

}  // namespace
}  // namespace moestro
