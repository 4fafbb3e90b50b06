// SPDX-License-Identifier: MIT
#include "chat/answer_parser.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "chat/answers_testing.h"
#include "chat/json_scan.h"

namespace moestro {
namespace {

TEST(AnswerParser, ReadsWhatModelsWrite) {
  for (const Example& example : Examples()) {
    EXPECT_EQ(Read(example.style, example.text), example.expected) << example.name;
  }
}

TEST(AnswerParser, ReadsTheSameHoweverTheTextIsCut) {
  std::mt19937 random(1);
  for (Example example : Examples()) {
    for (const bool certain : {false, true}) {
      example.style.calls_are_certain = certain;
      const std::string whole = Read(example.style, example.text);
      const std::vector<size_t> cuts = Cuts(example.text);
      const std::string_view text = example.text;
      std::vector<std::string_view> letters;
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        const auto parts = {text.substr(0, cuts[i]), text.substr(cuts[i])};
        ASSERT_EQ(Describe(Parse(example.style, parts)), whole) << example.name << cuts[i];
        letters.push_back(text.substr(cuts[i], cuts[i + 1] - cuts[i]));
      }
      ASSERT_EQ(Describe(Parse(example.style, letters)), whole) << example.name;
      for (int trial = 0; trial < 50; ++trial) {
        std::vector<std::string_view> parts;
        size_t begin = 0;
        for (const size_t cut : cuts) {
          if (random() % 4 != 0 && cut != text.size()) continue;
          parts.push_back(text.substr(begin, cut - begin));
          begin = cut;
        }
        ASSERT_EQ(Describe(Parse(example.style, parts)), whole) << example.name << trial;
      }
    }
  }
}

// Pieces of marks, names and values in any order: a parser that gets them letter by letter gives
// the deltas of the whole, and holds nothing back at the end.
TEST(AnswerParser, ReadsPiecesOfCallsInAnyOrder) {
  std::mt19937 random(2);
  std::vector<Example> examples = Examples();
  for (const Example& example : examples) {
    std::vector<std::string> pieces{"add", "look", "{", "}",       "\"a\": 1",
                                    "\n",  " ",    "x", "</think>"};
    const CallStyle& calls = example.style.calls;
    for (const std::string_view mark :
         {calls.begin, calls.end, calls.list_begin, calls.list_end, calls.call_begin,
          calls.name_end, calls.call_end, calls.key_begin, calls.key_end, calls.value_begin,
          calls.value_end, calls.string_mark, kChannelMark, kMessageMark}) {
      if (mark.empty()) continue;
      pieces.emplace_back(mark);
      pieces.emplace_back(mark.substr(0, 1 + random() % mark.size()));
    }
    for (int trial = 0; trial < 12; ++trial) {
      std::string text;
      for (int i = 0; i < 14; ++i) text += pieces[random() % pieces.size()];
      if (FindInvalidUtf8(text) < text.size()) continue;
      const std::vector<size_t> cuts = Cuts(text);
      std::vector<std::string_view> letters;
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        letters.push_back(std::string_view(text).substr(cuts[i], cuts[i + 1] - cuts[i]));
      }
      ASSERT_EQ(Describe(Parse(example.style, letters)), Read(example.style, text))
          << example.name << '\n'
          << text;
    }
  }
}

// Texts that are just short enough for a name or a header, and just too long.
TEST(AnswerParser, ReadsLongNamesTheSameHoweverTheTextIsCut) {
  const auto expect_same = [](const AnswerStyle& style, std::string_view text) {
    std::vector<std::string_view> letters;
    for (size_t i = 0; i < text.size(); ++i) letters.push_back(text.substr(i, 1));
    EXPECT_EQ(Describe(Parse(style, letters)), Read(style, text)) << text;
  };
  for (size_t length = 230; length < 270; ++length) {
    const std::string name(length, 'x');
    expect_same(Named(), "[TOOL_CALLS]" + name + "[ARGS]{}");
    expect_same(Named(), "[TOOL_CALLS]" + name + "            [ARGS]{}");
    expect_same(KeyValues(), "<tool_call>" + name + "\n</tool_call>");
    expect_same(Parameters(), "<tool_call><function=" + name + "></function></tool_call>");
    expect_same(Channels(), "<|channel|>" + name + "<|message|>{}");
  }
}

// Every example, cut off everywhere: the arguments of each call are JSON.
TEST(AnswerParser, ArgumentsAreAlwaysAnObject) {
  for (const Example& example : Examples()) {
    for (const size_t cut : Cuts(example.text)) {
      std::vector<std::string> arguments;
      for (const ChatDelta& delta : Parse(example.style, {example.text.substr(0, cut)})) {
        if (delta.kind == ChatDelta::Kind::kCallBegin) arguments.emplace_back();
        if (delta.kind == ChatDelta::Kind::kCallArguments) arguments.back() += delta.text;
      }
      for (const std::string& text : arguments) {
        EXPECT_TRUE(Json::Parse(text).has_value() && text.starts_with('{')) << example.name << text;
      }
    }
  }
}

// The text of one kind of delta.
std::string OfKind(const std::vector<ChatDelta>& deltas, ChatDelta::Kind kind) {
  std::string text;
  for (const ChatDelta& delta : deltas) {
    if (delta.kind == kind) text += delta.text;
  }
  return text;
}

std::string WithoutBlanksAtItsEnd(std::string text) {
  while (!text.empty() && kBlanks.contains(text.back())) text.pop_back();
  return text;
}

// Every example, cut off by a limit everywhere: the deltas are a part of the whole answer's, so no
// beginning of a mark or of a call is content.
TEST(AnswerParser, ALimitShowsNothingThatTheWholeAnswerDoesNotSay) {
  for (Example example : Examples()) {
    for (const bool certain : {false, true}) {
      example.style.calls_are_certain = certain;
      const auto whole = Parse(example.style, {example.text});
      for (const size_t cut : Cuts(example.text)) {
        const std::string text = example.text.substr(0, cut);
        const auto deltas = Parse(example.style, {text}, AnswerEnd::kCut);
        for (const auto kind : {ChatDelta::Kind::kContent, ChatDelta::Kind::kReasoning}) {
          const std::string said = WithoutBlanksAtItsEnd(OfKind(deltas, kind));
          EXPECT_TRUE(OfKind(whole, kind).starts_with(said)) << example.name << certain << '\n'
                                                             << text << "\nsaid: " << said;
        }
      }
    }
  }
}

TEST(AnswerParser, AStopStringWithinACallLeavesNoneOfItBehind) {
  const std::string begun = "So: a <to\n<tool_call>\n{\"name\": \"add\", \"argum";
  EXPECT_EQ(Describe(Parse(Tagged(), {begun}, AnswerEnd::kStopped)), "So: a <to");
  // The stop string followed a possible beginning of a mark, so the beginning is text.
  EXPECT_EQ(Describe(Parse(Tagged(), {"1 <"}, AnswerEnd::kStopped)), "1 <");
  EXPECT_EQ(Describe(Parse(Tagged(), {"1 <"}, AnswerEnd::kCut)), "1");
  AnswerStyle style = Tagged();
  style.calls_are_certain = true;
  AnswerParser parser(style, 1);
  parser.Push(begun + "ents\": {\"a\": ");
  EXPECT_TRUE(parser.has_calls() && parser.is_in_call());
  parser.Push("1}}</tool_call>");
  EXPECT_FALSE(parser.is_in_call());
}

TEST(AnswerParser, KnowsWhenTheModelThinks) {
  AnswerParser parser(Tagged(), 1);
  EXPECT_FALSE(parser.is_thinking());
  parser.Push("<think>");
  EXPECT_TRUE(parser.is_thinking());
  parser.Push("Hm.</think>");
  EXPECT_FALSE(parser.is_thinking());
  EXPECT_TRUE(AnswerParser(Thinking(Tagged()), 1).is_thinking());
  AnswerParser channels(Channels(), 1);
  channels.Push("<|channel|>analysis<|message|>H");
  EXPECT_TRUE(channels.is_thinking());
  channels.Push("<|end|>");
  EXPECT_FALSE(channels.is_thinking());
}

// Calls that no grammar holds are passed on when they are whole, even if others are certain.
TEST(AnswerParser, OnlyACallThatBeginsAsAGrammarHoldsItIsPassedOnInPieces) {
  AnswerStyle style = Parameters();
  style.calls_are_certain = true;
  EXPECT_EQ(Read(style, "<function=look>\n<parameter=place>\nRome"),
            "<function=look>\n<parameter=place>\nRome");
  style = Bare();
  style.calls_are_certain = true;
  EXPECT_EQ(Read(style, "{\"name\":\"add\", \"parameters\": {\"a\": oops"),
            "{\"name\":\"add\", \"parameters\": {\"a\": oops");
}

TEST(AnswerParser, CallsThatAreCertainArePassedOnPieceByPiece) {
  AnswerStyle style = Tagged();
  style.calls_are_certain = true;
  AnswerParser parser(style, 1);
  EXPECT_TRUE(parser.Push("<tool_call>\n{\"name\": \"add\", \"argum").empty());
  EXPECT_FALSE(parser.has_calls());
  EXPECT_EQ(Describe(parser.Push("ents\": {\"a\"")), "add[{\"a\"]");
  EXPECT_TRUE(parser.has_calls());
  const auto next = parser.Push(": \"x");
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].kind, ChatDelta::Kind::kCallArguments);
  EXPECT_EQ(next[0].text, ": \"x");
  EXPECT_TRUE(parser.Finish().empty());  // cut off: the client gets arguments that end early
}

// Grammars hold no bound of levels, so that readers of calls have none.
TEST(AnswerParser, CallsAreReadHoweverDeepTheyAre) {
  const auto repeated = [](std::string_view text, size_t n) {
    std::string all;
    for (size_t i = 0; i < n; ++i) all += text;
    return all;
  };
  for (const size_t levels : {62U, 63U, 64U, 65U, 5000U}) {
    const std::string list = repeated("[", levels) + repeated("]", levels);
    const std::string call = R"({"name": "add", "arguments": {"a": )" + list + "}}";
    const std::string json = R"(add[{"a": )" + list + "}]";
    const std::string tag = "]<]minimax[>[<a>";
    const std::string tag_end = "]<]minimax[>[</a>";
    const Example examples[] = {
        {"JSON in tags", Tagged(), "<tool_call>\n" + call + "\n</tool_call>", json},
        {"a list", List(), "[TOOL_CALLS][" + call + "]", json},
        {"arguments as text", Tagged(),
         R"(<tool_call>{"name": "add", "arguments": "{\"a\": )" + list + "}\"}</tool_call>", json},
        {"keys and values", KeyValues(),
         "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>" + list + "</arg_value>\n</tool_call>",
         json},
        {"channels", Channels(),
         "<|channel|>commentary to=functions.add<|message|>{\"a\": " + list + "}<|call|>", json},
        {"marked strings", MarkedStrings(), "<|tool_call>call:add{a:" + list + "}<tool_call|>",
         json},
        {"Python", Python(), "<|tool_call_start|>[add(a=" + list + ")]<|tool_call_end|>", json},
        {"nested tags", Nested(),
         "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"add\">" + repeated(tag, levels) +
             "1" + repeated(tag_end, levels) + "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
         "add[" + repeated(R"({"a": )", levels) + "1" + repeated("}", levels) + "]"},
    };
    for (const Example& example : examples) {
      for (const bool is_certain : {false, true}) {
        AnswerStyle style = example.style;
        style.calls_are_certain = is_certain;
        const std::string_view text = example.text;
        const size_t half = text.size() / 2;
        EXPECT_EQ(Describe(Parse(style, {text.substr(0, half), text.substr(half)})),
                  example.expected)
            << example.name << " of " << levels << " levels";
      }
    }
  }
}

TEST(AnswerParser, TextIsPassedOnAtOnceButForWhatMayBeAMark) {
  AnswerParser parser(Tagged(), 1);
  EXPECT_EQ(Describe(parser.Push("Hello, ")), "Hello,");
  EXPECT_EQ(Describe(parser.Push("you <to")), " you");
  EXPECT_EQ(Describe(parser.Push("ad")), " <toad");
}

TEST(AnswerParser, WithoutCallsEverythingIsContent) {
  const AnswerStyle style;
  EXPECT_EQ(Read(style, "<think>a</think> <tool_call>{} \n"), "<think>a</think> <tool_call>{} \n");
}

TEST(AnswerParser, IdsAreUniqueAndFollowFromTheSeed) {
  const std::string text =
      "<tool_call>{\"name\":\"add\"}</tool_call><tool_call>{\"name\":\"add\"}</tool_call>";
  const auto ids = [&](uint64_t seed) {
    AnswerParser parser(Tagged(), seed);
    std::vector<std::string> found;
    for (const ChatDelta& delta : parser.Push(text)) {
      if (delta.kind == ChatDelta::Kind::kCallBegin) found.push_back(delta.call_id);
    }
    return found;
  };
  std::set<std::string> all;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(ids(seed), ids(seed));
    for (const std::string& id : ids(seed)) {
      EXPECT_EQ(id.size(), 29U);
      EXPECT_TRUE(id.starts_with("call_"));
      all.insert(id);
    }
  }
  EXPECT_EQ(all.size(), 100U);
}

}  // namespace
}  // namespace moestro
