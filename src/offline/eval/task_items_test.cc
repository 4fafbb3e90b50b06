// SPDX-License-Identifier: MIT
#include "offline/eval/task_items.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace moestro {
namespace {

using Fields = std::vector<std::string>;

TEST(TaskItems, CsvWithEverythingThatAFieldMayHold) {
  const auto records = ParseCsv(
      "\xef\xbb\xbfone,two\r\n\"a, b\",\"said \"\"no\"\"\nand left\"\n\n,\"\"\nlast,", "f");
  ASSERT_TRUE(records.has_value());
  ASSERT_EQ(records->size(), 4U);
  EXPECT_EQ(records->at(0).fields, (Fields{"one", "two"}));
  EXPECT_EQ(records->at(1).fields, (Fields{"a, b", "said \"no\"\nand left"}));
  EXPECT_EQ(records->at(1).line, 2U);
  EXPECT_EQ(records->at(2).fields, (Fields{"", ""}));
  EXPECT_EQ(records->at(2).line, 5U);
  EXPECT_EQ(records->at(3).fields, (Fields{"last", ""}));
  EXPECT_TRUE(ParseCsv("", "f")->empty());
}

void ExpectSays(const auto& result, const std::string& part) {
  ASSERT_FALSE(result.has_value()) << "wanted " << part;
  EXPECT_EQ(result.error().code, Errc::kInvalidRequest);
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
}

TEST(TaskItems, BadCsvNamesTheLine) {
  ExpectSays(ParseCsv("a,b\nc,\"d\ne", "f.csv"), "f.csv:2: a quoted field that does not end");
  ExpectSays(ParseCsv("a\nb\"c\n", "f.csv"), "f.csv:2: a quote inside");
  ExpectSays(ParseCsv("\"a\"b\n", "f.csv"), "f.csv:1: text after");
}

const std::string kHead = "Type,Question,Best Answer,Incorrect Answers\n";

TEST(TaskItems, TruthfulQa) {
  const auto items = ParseTruthfulQa(kHead + "x, Why? ,Because,\"No; Yes ; America;\"\n", "f");
  ASSERT_TRUE(items.has_value());
  ASSERT_EQ(items->size(), 1U);
  EXPECT_EQ(items->front().question, "Why?");
  EXPECT_EQ(items->front().best, "Because");
  EXPECT_EQ(items->front().incorrect, (Fields{"No", "Yes", "America"}));
  ExpectSays(ParseTruthfulQa("", "f"), "no column 'Question'");
  ExpectSays(ParseTruthfulQa("Question,Best Answer\n", "f"), "no column 'Incorrect Answers'");
  ExpectSays(ParseTruthfulQa(kHead + "x,Why?,Because\n", "f"), "f:2: 3 fields");
  ExpectSays(ParseTruthfulQa(kHead + "x,Why?,Because,;\n", "f"), "f:2: needs");
  ExpectSays(ParseTruthfulQa(kHead + "x,,Because,No\n", "f"), "f:2: needs");
}

TEST(TaskItems, Gsm8k) {
  const auto items = ParseGsm8k(
      "{\"question\": \"2+2?\", \"answer\": \"2+2=<<2+2=4>>4\\n#### 4\"}\n\n"
      "{\"question\": \"q\", \"answer\": \"#### -1,450,000\"}",
      "f");
  ASSERT_TRUE(items.has_value());
  ASSERT_EQ(items->size(), 2U);
  EXPECT_EQ(items->at(0).number, "4");
  EXPECT_EQ(items->at(1).number, "-1450000");
  ExpectSays(ParseGsm8k("{\"question\": \"q\"}", "f"), "f:1: needs");
  ExpectSays(ParseGsm8k("{\"question\": 1, \"answer\": \"#### 1\"}", "f"), "f:1: needs");
  ExpectSays(ParseGsm8k("\n{\"question\"", "f"), "f:2: ");
  ExpectSays(ParseGsm8k("{\"question\": \"q\", \"answer\": \"it is 4\"}", "f"), "f:1: the answer");
  ExpectSays(ParseGsm8k("{\"question\": \"q\", \"answer\": \"#### four\"}", "f"),
             "f:1: the answer");
}

TEST(TaskItems, FinalNumbers) {
  const std::vector<std::pair<std::string, std::optional<std::string>>> cases = {
      {"", std::nullopt},
      {"none at all", std::nullopt},
      {"18", "18"},
      {"She has 3 apples and 4 pears, so 7.", "7"},
      {"#### 18\nQuestion 2", "18"},
      {"first #### 1, then #### $2,125 and 9", "2125"},
      {"####", std::nullopt},
      {"it costs $1,050.00", "1050"},
      {"about 3.140", "3.14"},
      {"-5", "-5"},
      {"16-3", "3"},
      {"pages 3,4", "34"},  // as a comma within a number
      {"1, 2", "2"},
      {"0.50", "0.5"},
      {"100", "100"}};
  for (const auto& [text, number] : cases) EXPECT_EQ(FinalNumber(text), number) << text;
}

}  // namespace
}  // namespace moestro
