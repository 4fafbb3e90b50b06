// SPDX-License-Identifier: MIT
#include "chat/json_scan.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/json.h"

namespace moestro {
namespace {

constexpr std::string_view kTexts[] = {
    R"({"a": [1, -2.5e+3, true, null], "b": {"c": "x\"\u00e9\\"}} rest)",
    R"( [ ] )",
    R"({"a":nulx})",
    R"([1.e3])",
    R"([01])",
    R"(["\x"])",
    R"(["\u12g4"])",
    "[\"\n\"]",
    R"([1,])",
    R"({"a" 1})",
    R"({a: 1})",
    R"([1}])",
    "tru",
    "\"open",
    "12 ",
    "-"};

TEST(ScanJson, FindsTheEndOfAValue) {
  EXPECT_EQ(ScanJson("{\"a\": \"}\"} x").length, 10U);
  EXPECT_EQ(ScanJson(" \n12,").length, 4U);
  EXPECT_EQ(ScanJson("12").state, Scan::kOpen);
  EXPECT_EQ(ScanJson("").state, Scan::kOpen);
}

TEST(ScanJson, AgreesWithTheParser) {
  for (const std::string_view text : kTexts) {
    const JsonScan found = ScanJson(text);
    const bool is_json = Json::Parse(text.substr(0, found.length)).has_value();
    EXPECT_EQ(found.state == Scan::kWhole, is_json) << text;
  }
}

TEST(ScanJson, MoreTextNeverTakesBackWhatWasCertain) {
  for (const std::string_view text : kTexts) {
    size_t certain = 0;
    for (size_t n = 0; n <= text.size(); ++n) {
      const JsonScan found = ScanJson(text.substr(0, n));
      EXPECT_GE(found.length, certain) << text.substr(0, n);
      EXPECT_LE(found.length, n);
      certain = found.length;
    }
  }
}

TEST(ScanJson, TakesAnyDepth) {
  const std::string open(1'000'000, '[');
  EXPECT_EQ(ScanJson(open).state, Scan::kOpen);
  EXPECT_EQ(ScanJson(open + std::string(open.size(), ']')).state, Scan::kWhole);
}

}  // namespace
}  // namespace moestro
