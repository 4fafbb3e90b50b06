// SPDX-License-Identifier: MIT
// Small templates, one feature each, with the results of Python's jinja2 (tests/jinja/README.md).
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "base/json.h"
#include "jinja/json_text.h"
#include "jinja/template.h"

namespace moestro::jinja {
namespace {

Json ReadExpressions() {
  std::ifstream file(MOESTRO_SOURCE_DIR "/tests/jinja/expressions.json", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  auto parsed = Json::Parse(text);
  EXPECT_TRUE(parsed);
  return parsed ? *std::move(parsed) : Json();
}

// The clock of the answers: 2031-03-09 14:05:06.
std::tm Then() {
  std::tm then{};
  then.tm_year = 131;
  then.tm_mon = 2;
  then.tm_mday = 9;
  then.tm_hour = 14;
  then.tm_min = 5;
  then.tm_sec = 6;
  return then;
}

Result<std::string> Render(std::string_view text, std::string_view context) {
  TRY(const Template parsed, Template::Parse(text));
  JsonReading reading{.values_left = 10'000};
  TRY(const Value variables, ReadJson(context, reading));
  std::string said;
  TRY_STATUS(parsed.Render(variables, [&said](std::string_view part) { said += part; },
                           {.now = Then, .most_steps = 1'000'000}));
  return said;
}

std::string TextIn(JsonView object, std::string_view key) {
  const auto value = object.Find(key);
  return value ? value->text().value_or("") : "";
}

// Deliberate differences: lists and dicts may be changed in place, and a branch that is not taken
// may use unknown filters and tests (docs/templates.md).
const std::set<std::string> kDeliberate{"method map 8", "method map 9", "method map 12"};

TEST(JinjaExpressions, AreAsPythonHasThem) {
  const Json all = ReadExpressions();
  ASSERT_GE(all.size(), 385U);
  for (size_t i = 0; i < all.size(); ++i) {
    const JsonView one = *all.At(i);
    const std::string name = TextIn(one, "name");
    const auto context = one.Find("context");
    const auto said = Render(TextIn(one, "template"), context ? context->Dump() : "{}");
    if (kDeliberate.contains(name)) {
      EXPECT_TRUE(said) << name;
      continue;
    }
    if (const auto output = one.Find("output")) {
      EXPECT_EQ(said ? *said : "fails: " + said.error().message, output->text())
          << name << ": " << TextIn(one, "template");
      continue;
    }
    EXPECT_FALSE(said) << name << ": " << TextIn(one, "template");
    constexpr std::string_view kOwnWords = "raise_exception: ";
    const std::string raises = TextIn(one, "raises");
    if (!said && raises.starts_with(kOwnWords)) {
      EXPECT_EQ(said.error().code, Errc::kInvalidRequest) << name;
      EXPECT_EQ(said.error().message, raises.substr(kOwnWords.size())) << name;
    }
  }
}

}  // namespace
}  // namespace moestro::jinja
