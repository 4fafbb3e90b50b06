// SPDX-License-Identifier: MIT
#include "commands/plan_report.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace moestro {
namespace {

constexpr PlannedSpeed kPlanned{.share = 0.5, .low = 10.0, .high = 20.0};

// Of a decode with so many tokens in a second.
std::string TextFor(uint64_t tokens) {
  RunReport report;
  report.stats.decode.tokens = tokens;
  report.stats.decode.seconds = 1.0;
  return PlannedText(kPlanned, report);
}

TEST(PlannedLine, SaysWhatCame) {
  EXPECT_EQ(TextFor(9), "planned  10.0 to 20.0 tok/s in decode; 9.0 came, less than planned\n");
  EXPECT_EQ(TextFor(15), "planned  10.0 to 20.0 tok/s in decode; 15.0 came, as planned\n");
  EXPECT_EQ(TextFor(21), "planned  10.0 to 20.0 tok/s in decode; 21.0 came, more than planned\n");
}

TEST(PlannedLine, BothEndsAreNumbersOfTheirOwn) {
  Json json = Json::Object();
  AddPlanned(json, kPlanned);
  EXPECT_EQ(json.Dump(), R"({"planned_low_tps":10.0,"planned_high_tps":20.0})");
}

}  // namespace
}  // namespace moestro
