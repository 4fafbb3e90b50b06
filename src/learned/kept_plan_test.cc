// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "learned/kept_facts.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

const std::vector<PlannedSpeed> kPoints{{.share = 0.25, .low = 4.0, .high = 6.0},
                                        {.share = 0.75, .low = 16.0, .high = 24.0},
                                        {.share = 1.0, .low = 20.0, .high = 26.0}};

TEST(KeptPlan, SpeedsBetweenPoints) {
  EXPECT_FALSE(SpeedAt({}, 0.5));
  EXPECT_FALSE(SpeedAt(kPoints, 0.1));
  EXPECT_EQ(SpeedAt(kPoints, 0.75), kPoints[1]);
  EXPECT_EQ(SpeedAt(kPoints, 1.0), kPoints[2]);
  const auto between = SpeedAt(kPoints, 0.5);
  ASSERT_TRUE(between);
  EXPECT_NEAR(between->low, 8.0, 1e-9);
  EXPECT_NEAR(between->high, 12.0, 1e-9);
}

TEST(KeptPlan, KeptForAModelAndItsThreads) {
  const TempFolder folder;
  const std::string kept = folder.path() / "cache";
  EXPECT_TRUE(KeptPlan(kept, 7, 2).empty());
  KeepPlan(kept, 7, 2, kPoints);
  EXPECT_EQ(KeptPlan(kept, 7, 2), kPoints);
  EXPECT_TRUE(KeptPlan(kept, 8, 2).empty());
  EXPECT_TRUE(KeptPlan(kept, 7, 4).empty());
  EXPECT_TRUE(KeptPlan("", 7, 2).empty());
}

TEST(KeptPlan, ADamagedFileIsAsNone) {
  const TempFolder folder;
  const std::string kept = folder.path() / "cache";
  for (const std::string points :
       {"3", "[{\"share\":0.5,\"low\":2,\"high\":1}]",
        "[{\"share\":0.5,\"low\":1,\"high\":2},{\"share\":0.4,\"low\":1,\"high\":2}]",
        "[{\"share\":2,\"low\":1,\"high\":2}]"}) {
    KeepPlan(kept, 7, 2, kPoints);
    for (const auto& entry : std::filesystem::directory_iterator(kept)) {
      std::ofstream(entry.path()) << R"({"format":"moestro plan","version":1,"points":)" << points
                                  << "}";
    }
    EXPECT_TRUE(KeptPlan(kept, 7, 2).empty()) << points;
  }
}

}  // namespace
}  // namespace moestro
