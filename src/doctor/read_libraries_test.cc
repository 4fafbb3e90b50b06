// SPDX-License-Identifier: MIT
#include "doctor/read_libraries.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace moestro {
namespace {

TEST(RingStates, OfErrors) {
  EXPECT_EQ(RingStateOf(0), RingState::kWorks);
  EXPECT_EQ(RingStateOf(EPERM), RingState::kForbidden);
  EXPECT_EQ(RingStateOf(ENOSYS), RingState::kMissing);
  EXPECT_EQ(RingStateOf(ENOMEM), RingState::kFails);
}

TEST(VersionInName, IsWhatFollowsTheEnding) {
  EXPECT_EQ(VersionInName("/usr/lib/libllama.so.0.7.0"), "0.7.0");
  EXPECT_EQ(VersionInName("/usr/lib/libllama.so"), "");
  EXPECT_EQ(VersionInName(""), "");
}

TEST(ReadLibraryFacts, OfThisMachine) {
  SystemFacts facts;
  ReadLibraryFacts(facts);
  EXPECT_TRUE(facts.ggml.has_cpu);
  ASSERT_EQ(facts.ggml.libraries.size(), 2U);
  EXPECT_EQ(facts.ggml.libraries[0].running, facts.ggml.libraries[0].built);
  EXPECT_EQ(facts.ring.error.empty(), facts.ring.state == RingState::kWorks);
}

}  // namespace
}  // namespace moestro
