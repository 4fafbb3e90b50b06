// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "learned/kept_facts.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

constexpr SeenCaching kSeen{.share = 0.25, .missing = 0.125};

TEST(SeenCachingTest, KeptForAModel) {
  const TempFolder folder;
  const std::string kept = folder.path() / "cache";
  EXPECT_FALSE(KeptCaching(kept, 7));
  KeepCaching(kept, 7, kSeen);
  EXPECT_EQ(KeptCaching(kept, 7), kSeen);
  EXPECT_FALSE(KeptCaching(kept, 8));
  EXPECT_FALSE(KeptCaching("", 7));
}

TEST(SeenCachingTest, ADamagedFileIsAsNone) {
  const TempFolder folder;
  const std::string kept = folder.path() / "cache";
  for (const std::string rest : {"}", R"(,"share":2,"missing":0.1})", R"(,"share":0.5})",
                                 R"(,"share":0.5,"missing":-1})", "nonsense"}) {
    KeepCaching(kept, 7, kSeen);
    for (const auto& entry : std::filesystem::directory_iterator(kept)) {
      std::ofstream(entry.path()) << R"({"format":"moestro caching","version":1)" << rest;
    }
    EXPECT_FALSE(KeptCaching(kept, 7)) << rest;
  }
}

}  // namespace
}  // namespace moestro
