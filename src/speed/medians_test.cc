// SPDX-License-Identifier: MIT
#include "speed/medians.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moestro {
namespace {

Json OneRun(const std::string& name, double tps, int slots) {
  Json run = Json::Object();
  run.Set("name", name).Set("tps", tps).Set("slots", slots).Set("limit", Json());
  return run;
}

TEST(Medians, NumbersAreMediansAndTheRestIsTheFirstRuns) {
  std::vector<Json> runs;
  runs.push_back(OneRun("a", 3.0, 12));
  runs.push_back(OneRun("b", 1.0, 12));
  runs.push_back(OneRun("c", 2.5, 12));
  const Json result = MediansOf(runs);
  EXPECT_EQ(result.Find("tps")->Dump(), "2.5");
  EXPECT_EQ(result.Find("slots")->Dump(), "12");
  EXPECT_EQ(result.Find("name")->Dump(), "\"a\"");
  EXPECT_EQ(result.Find("limit")->Dump(), "null");
}

TEST(Medians, OfTwoRunsAreTheMiddle) {
  std::vector<Json> runs;
  runs.push_back(OneRun("a", 1.0, 1));
  runs.push_back(OneRun("a", 2.0, 4));
  EXPECT_EQ(MediansOf(runs).Find("tps")->Dump(), "1.5");
  EXPECT_EQ(MediansOf(runs).Find("slots")->Dump(), "2.5");
}

}  // namespace
}  // namespace moestro
