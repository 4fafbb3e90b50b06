// SPDX-License-Identifier: MIT
#include "base/json.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

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

// A parser or a copy that recurses would run out of stack on these.
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

// The library throws something else for these than for other mistakes.
TEST(Json, RefusesNumbersThatNoDoubleHolds) {
  for (const char* text : {"1e999", "[-9999e444]", R"({"a":1e400,"b":)"}) {
    const auto parsed = Json::Parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Errc::kInvalidRequest);
    EXPECT_NE(parsed.error().message.find("number"), std::string::npos) << parsed.error().message;
  }
  EXPECT_EQ(Json::Parse("1e-999")->number(), 0.0);
}

// A view shows the value where it lies; a copy of it is a value of its own.
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
