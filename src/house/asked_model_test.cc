// SPDX-License-Identifier: MIT
#include "house/asked_model.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

std::string NameIn(std::string_view body) {
  const ApiResult<AskedModel> asked = ReadAskedModel(body);
  return asked ? asked->model : "error: " + asked.error().message;
}

TEST(AskedModel, TheNameIsFoundWhereverItStands) {
  EXPECT_EQ(NameIn(R"({"model":"a"})"), "a");
  EXPECT_EQ(
      NameIn(R"( { "messages" : [ {"model":"x", "content":"}]{\"" } ] , "model" : "a/b:Q4" } )"),
      "a/b:Q4");
  EXPECT_EQ(NameIn(R"({"n":-1.5e3,"s":true,"t":null,"model":"a","z":{"model":"b"}})"), "a");
  EXPECT_EQ(NameIn(R"({"m\u006fdel":"\u0061\"b"})"), "a\"b");
  EXPECT_EQ(NameIn(R"({"model":"a","model":"b"})"), "b") << "the last counts";
  EXPECT_EQ(NameIn(R"({"name":"a"})"), "a");
  EXPECT_EQ(NameIn(R"({"name":"a","model":"b"})"), "b");
  EXPECT_EQ(NameIn(R"({"prompt":"a \\"})"), "");
  EXPECT_EQ(NameIn(R"({"model":null})"), "");
  EXPECT_EQ(NameIn("{}"), "");
}

TEST(AskedModel, WrongBodiesAreRefused) {
  for (const std::string_view body :
       {"", " ", "[]", "3", "{", R"({"model")", R"({"model":)", R"({"model":"a)", R"({"model":"a")",
        R"({"model":"a"}x)", R"({"model" "a"})", R"({model:"a"})", R"({"a":[1,{"b":2]})",
        R"({"a":)", R"({"a":"\)", R"({"a":1,})", R"({"a":[})", "\xff", "a=b"}) {
    EXPECT_FALSE(ReadAskedModel(body)) << body;
  }
  EXPECT_TRUE(NameIn(R"({"model":5})").contains("error"));
  EXPECT_TRUE(NameIn(R"({"model":["a"]})").contains("error"));
  EXPECT_TRUE(NameIn(R"({"model":"\ud800"})").contains("error"));
}

TEST(AskedModel, ANameOfAMegabyteIsRefusedInOneSentence) {
  const auto asked = ReadAskedModel(R"({"model":")" + std::string(1 << 20, 'a') + R"("})");
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().status, 400);
  EXPECT_EQ(asked.error().param, "model");
  EXPECT_LT(asked.error().message.size(), 200U);
}

TEST(AskedModel, DeepAndLargeBodiesPass) {
  const std::string deep = std::string(1 << 20, '[') + std::string(1 << 20, ']');
  EXPECT_EQ(NameIn(R"({"x":)" + deep + R"(,"model":"a"})"), "a");
  EXPECT_EQ(NameIn(R"({"x":")" + std::string(1 << 22, '"').replace(0, 1 << 22, 1 << 22, '.') +
                   R"(","model":"a"})"),
            "a");
}

TEST(AskedModel, SaysWhetherThereIsAText) {
  const auto has_text = [](std::string_view body) { return ReadAskedModel(body)->has_text; };
  EXPECT_TRUE(has_text(R"({"prompt":"a"})"));
  EXPECT_TRUE(has_text(R"({"messages":[{}]})"));
  EXPECT_FALSE(has_text(R"({"prompt":"","messages":[],"input":null})"));
  EXPECT_FALSE(has_text(R"({"model":"a","keep_alive":0})"));
}

TEST(KeepAlive, TimesAreRead) {
  const auto seconds = [](std::string_view text) { return ParseKeepAlive(text).value_or(-77.0); };
  EXPECT_EQ(seconds("5m"), 300.0);
  EXPECT_EQ(seconds("1h30m"), 5400.0);
  EXPECT_EQ(seconds("1.5s"), 1.5);
  EXPECT_EQ(seconds("90"), 90.0);
  EXPECT_EQ(seconds("0"), 0.0);
  EXPECT_EQ(seconds("-1"), -1.0);
  EXPECT_EQ(seconds("-1m"), -60.0);
  EXPECT_EQ(seconds("forever"), -1.0);
  for (const std::string_view text : {"", "-", "m", "5 m", "5x", "h5", "1e", "nan", "5m-"}) {
    EXPECT_EQ(seconds(text), -77.0) << text;
  }
}

TEST(KeepAlive, IsAFieldOfTheBody) {
  const auto seconds = [](std::string_view body) {
    const auto asked = ReadAskedModel(body);
    return asked ? asked->keep_alive : std::optional<double>(-77.0);
  };
  EXPECT_EQ(seconds(R"({"keep_alive":"5m"})"), 300.0);
  EXPECT_EQ(seconds(R"({"keep_alive":60})"), 60.0);
  EXPECT_EQ(seconds(R"({"keep_alive":-1})"), -1.0);
  EXPECT_EQ(seconds(R"({"keep_alive":null})"), std::nullopt);
  EXPECT_EQ(seconds(R"({"keep_alive":"soon"})"), -77.0);
  EXPECT_EQ(seconds(R"({"keep_alive":[1]})"), -77.0);
}

}  // namespace
}  // namespace moestro
