// SPDX-License-Identifier: MIT
#include "base/json.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"

namespace moestro {
namespace {

TEST(Json, KeepsTheOrderOfKeysAndTheKindOfValues) {
  Json object = Json::Object();
  object.Set("model", "a.gguf").Set("tokens", 12).Set("rate", 0.5).Set("ok", true).Set("none", {});
  EXPECT_EQ(object.Dump(), R"({"model":"a.gguf","tokens":12,"rate":0.5,"ok":true,"none":null})");
}

TEST(Json, EscapesQuotesControlCharactersAndBackslashes) {
  Json object = Json::Object();
  object.Set("text", "a\"b\\c\n\t\x01");
  EXPECT_EQ(object.Dump(), R"({"text":"a\"b\\c\n\t\u0001"})");
}

TEST(Json, ReplacesBytesThatAreNotUtf8) {
  Json array = Json::Array();
  array.Push(
      std::string("a\xff"
                  "b"));
  EXPECT_EQ(array.Dump(),
            "[\"a\xEF\xBF\xBD"
            "b\"]");
}

TEST(Json, NumbersThatAreNotFiniteBecomeNull) {
  Json array = Json::Array();
  array.Push(std::numeric_limits<double>::infinity())
      .Push(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(array.Dump(), "[null,null]");
}

TEST(Json, LargeIntegersAreExact) {
  Json array = Json::Array();
  array.Push(std::numeric_limits<uint64_t>::max()).Push(std::numeric_limits<int64_t>::min());
  EXPECT_EQ(array.Dump(), "[18446744073709551615,-9223372036854775808]");
}

TEST(Json, WholeNumbersOfAnyLengthStayAsTheyAre) {
  const std::string text =
      R"({"a":18446744073709551616,"b":[-123456789012345678901234567890,{"c":0.5,"d":{}},[]]})";
  const auto parsed = Json::Parse(text);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->Dump(), text);
  EXPECT_EQ(parsed->view().Copy().Dump(), text);
  EXPECT_EQ(Json::Parse(parsed->Dump(2))->Dump(), text);
  const auto large = parsed->Find("a");
  EXPECT_EQ(large->kind(), JsonKind::kNumber);
  EXPECT_EQ(large->number(), 18446744073709551616.0);
  EXPECT_FALSE(large->integer());
  // With lines, as values without such numbers are written.
  std::string small = text;
  small.replace(small.find("18446744073709551616"), 20, "1");
  small.replace(small.find("-123456789012345678901234567890"), 31, "2");
  std::string large_lines = parsed->Dump(3);
  large_lines.replace(large_lines.find("18446744073709551616"), 20, "1");
  large_lines.replace(large_lines.find("-123456789012345678901234567890"), 31, "2");
  EXPECT_EQ(large_lines, Json::Parse(small)->Dump(3));
}

TEST(Json, VerbatimTextIsWrittenAsItIs) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  ASSERT_TRUE(Json::IsJson(deep));
  Json object = Json::Object();
  object.Set("a", Json::Verbatim(deep)).Set("b", 1);
  EXPECT_EQ(object.Dump(), "{\"a\":" + deep + ",\"b\":1}");
  EXPECT_EQ(object.view().Copy().Dump(), object.Dump());
  EXPECT_EQ(object.Find("a")->kind(), JsonKind::kNull);
  EXPECT_EQ(Json::Verbatim("{\n \"a b\" : \"\\\" \\\\\",\r\t\"c\": [ ] }").Dump(),
            R"({"a b":"\" \\","c":[]})");
  for (const char* text : {"", "[", "1e999", "{} {}", R"("\ud800")"}) {
    EXPECT_FALSE(Json::IsJson(text)) << text;
  }
  EXPECT_FALSE(Json::IsJson(std::string_view("1\0", 2)));
}

TEST(Json, FloatsSurviveTheWayThroughText) {
  const std::array<float, 3> numbers = {0.1F, -3.4028235e38F, 1e-45F};
  const auto parsed = Json::Parse(Json::Array(std::span<const float>(numbers)).Dump());
  ASSERT_TRUE(parsed);
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(static_cast<float>(parsed->At(i)->number().value()), numbers[i]);
  }
}

TEST(Json, ParsesWhatItPrintsAndSaysWhereAMistakeIs) {
  const auto parsed = Json::Parse(R"({"a":[1,2],"b":"x"})");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->Find("a")->size(), 2U);
  EXPECT_EQ(parsed->Find("b")->text(), "x");
  EXPECT_FALSE(parsed->Find("c"));
  EXPECT_FALSE(parsed->At(0));
  EXPECT_EQ(parsed->keys(), (std::vector<std::string>{"a", "b"}));
  const auto broken = Json::Parse("{\"a\":");
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, Errc::kInvalidRequest);
  EXPECT_NE(broken.error().message.find("byte 6"), std::string::npos) << broken.error().message;
}

// Many parsers take a zero byte for the end of the text.
TEST(Json, RefusesAZeroByteAndWhatIsBehindIt) {
  using std::literals::operator""sv;
  for (const std::string_view text : {"1\0"sv, "1\0 x"sv, "\"a\"\0\\\0"sv, "{}\0{}"sv, "\0"sv}) {
    const auto parsed = Json::Parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().message, Format("not JSON: mistake at byte {}", text.find('\0') + 1));
  }
}

// A recursive parser or copy would run out of stack on these texts.
TEST(Json, RefusesWhatIsNestedTooDeeply) {
  const std::string open(size_t{1} << 20, '[');
  const std::string close(open.size(), ']');
  for (const std::string& text :
       {open, open + close, R"({"a":)" + open + close + "}", std::string(65, '[')}) {
    const auto deep = Json::Parse(text);
    ASSERT_FALSE(deep);
    EXPECT_EQ(deep.error().code, Errc::kInvalidRequest);
    EXPECT_NE(deep.error().message.find("nested deeper than 64"), std::string::npos)
        << deep.error().message;
  }
  EXPECT_TRUE(Json::Parse(std::string(64, '[') + std::string(64, ']')));
  EXPECT_TRUE(Json::Parse("\"" + open + "\"")) << "brackets of a string nest nothing";
  EXPECT_TRUE(Json::Parse("[" + std::string(R"([{"a":[]}],)") + "[[]]]"));
}

TEST(Json, OfEqualKeysTheLastOneCounts) {
  const auto parsed = Json::Parse(R"({"a":1,"b":{"c":1,"c":[2]},"a":{"x":0},"d":4,"a":3})");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->Dump(), R"({"a":3,"b":{"c":[2]},"d":4})");
}

// A parser that compares each key with all keys before would run into the tests' time limit.
TEST(Json, ManyKeysTakeTimeInProportion) {
  std::string distinct = "{";
  std::string equal = "{";
  for (int i = 0; i < 300'000; ++i) {
    distinct += "\"key" + std::to_string(i) + "\":0,";
    equal += "\"key\":" + std::to_string(i) + ",";
  }
  const auto many = Json::Parse(distinct + "\"last\":[true]}");
  ASSERT_TRUE(many);
  EXPECT_EQ(many->size(), 300'001U);
  EXPECT_EQ(many->view().members().back().second.At(0)->boolean(), true);
  const auto one = Json::Parse(equal + "\"key\":7}");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->Dump(), R"({"key":7})");
}

// One string is one step of the parser, and cut short a number is a number.
TEST(Json, EndsInsideAValueWhenTheLimitSaysSo) {
  for (const std::string& text :
       {'"' + std::string(1'000'000, 'x') + '"', std::string(1'000'000, '1')}) {
    int looks = 0;
    const WorkLimit limit({.processor_seconds = 1.0,
                           .clock = [] { return 0.0; },
                           .is_over = [&] { return ++looks == 2; }});
    const auto parsed = Json::Parse(text, 1, limit);
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().code, Errc::kInterrupted);
    EXPECT_LT(limit.steps(), text.size() / 4);
  }
}

TEST(Json, RefusesMoreValuesThanAreAllowed) {
  const char* five = R"({"a":[1,null],"b":"x"})";
  EXPECT_TRUE(Json::Parse(five, 5));
  const auto parsed = Json::Parse(five, 4);
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().message.find("more than 4 values"), std::string::npos);
  EXPECT_FALSE(Json::Parse("[[],[],[]]", 3));
  EXPECT_FALSE(Json::Parse("[]", 0));
}

TEST(Json, TellsKindsApart) {
  const auto parsed = Json::Parse(R"([null,false,1,-1,0.5,"x",[],{}])");
  ASSERT_TRUE(parsed);
  using enum JsonKind;
  const std::vector<JsonKind> kinds = {kNull,   kBoolean, kNumber, kNumber,
                                       kNumber, kText,    kArray,  kObject};
  ASSERT_EQ(parsed->size(), kinds.size());
  for (size_t i = 0; i < kinds.size(); ++i) {
    const JsonView value = *parsed->At(i);
    EXPECT_EQ(value.kind(), kinds[i]) << i;
    EXPECT_EQ(value.boolean().has_value(), kinds[i] == kBoolean) << i;
    EXPECT_EQ(value.number().has_value(), kinds[i] == kNumber) << i;
    EXPECT_EQ(value.text().has_value(), kinds[i] == kText) << i;
  }
  EXPECT_EQ(parsed->At(1)->boolean(), false);
}

TEST(Json, IntegersAreWholeAndExact) {
  const auto integer = [](const char* text) { return Json::Parse(text)->integer(); };
  EXPECT_EQ(integer("9223372036854775807"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(integer("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(integer("9007199254740993"), 9007199254740993);
  EXPECT_EQ(integer("12.0"), 12);
  EXPECT_EQ(integer("-1e3"), -1000);
  EXPECT_FALSE(integer("9223372036854775808"));
  EXPECT_FALSE(integer("1e16"));
  EXPECT_FALSE(integer("0.5"));
  EXPECT_FALSE(integer("true"));
  EXPECT_FALSE(integer(R"("1")"));
}

TEST(Json, MembersComeInOrder) {
  const auto parsed = Json::Parse(R"({"b":1,"a":[2]})");
  const auto members = parsed->view().members();
  ASSERT_EQ(members.size(), 2U);
  EXPECT_EQ(members[0].first, "b");
  EXPECT_EQ(members[0].second.integer(), 1);
  EXPECT_EQ(members[1].first, "a");
  EXPECT_EQ(members[1].second.At(0)->integer(), 2);
  EXPECT_TRUE(parsed->Find("a")->members().empty());
}

// The library throws a different exception for such numbers than for other mistakes.
TEST(Json, RefusesNumbersThatNoDoubleHolds) {
  for (const char* text : {"1e999", "[-9999e444]", R"({"a":1e400,"b":)"}) {
    const auto parsed = Json::Parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Errc::kInvalidRequest);
    EXPECT_NE(parsed.error().message.find("number"), std::string::npos) << parsed.error().message;
  }
  EXPECT_EQ(Json::Parse("1e-999")->number(), 0.0);
}

// A view refers to the value in its object; a copy owns a value.
TEST(Json, ViewsShowAndCopiesOwn) {
  Json object = Json::Object();
  Json list = Json::Array();
  list.Push("x").Push(2);
  object.Set("list", std::move(list));
  const Json copy = object.Find("list")->Copy();
  object.Set("list", 0);
  EXPECT_EQ(copy.Dump(), R"(["x",2])");
  EXPECT_EQ(copy.At(1)->number(), 2.0);
  EXPECT_EQ(object.Find("list")->number(), 0.0);
  EXPECT_FALSE(object.Find("list")->At(0));
  EXPECT_FALSE(copy.At(2));
}

TEST(Json, TellsKindsApartAndListsMembersInOrder) {
  const auto parsed = Json::Parse(R"({"z":null,"a":false,"n":1.5,"t":"x","l":[],"o":{}})");
  ASSERT_TRUE(parsed);
  std::vector<JsonKind> kinds;
  std::string names;
  for (const auto& [name, value] : parsed->view().members()) {
    names += name;
    kinds.push_back(value.kind());
  }
  EXPECT_EQ(names, "zantlo");
  EXPECT_EQ(kinds, (std::vector{JsonKind::kNull, JsonKind::kBoolean, JsonKind::kNumber,
                                JsonKind::kText, JsonKind::kArray, JsonKind::kObject}));
  EXPECT_EQ(parsed->Find("a")->boolean(), false);
  EXPECT_FALSE(parsed->Find("z")->boolean());
  EXPECT_TRUE(parsed->Find("l")->members().empty());
}

}  // namespace
}  // namespace moestro
