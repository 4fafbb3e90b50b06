// SPDX-License-Identifier: MIT
#include "hub/web_request.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

// As docs/pull.md has it.
TEST(RetryTest, TheUsualWaits) {
  Retries retries({});
  for (const double seconds : {1.0, 2.0, 4.0, 8.0, 16.0}) {
    EXPECT_EQ(retries.AfterFailure({}), seconds);
  }
  EXPECT_FALSE(retries.AfterFailure({}));
}

TEST(RetryTest, WaitsGrowAndEnd) {
  Retries retries({.most_tries = 5, .first_wait = 1.0, .longest_wait = 3.0});
  EXPECT_EQ(retries.AfterFailure({}), 1.0);
  EXPECT_EQ(retries.AfterFailure({}), 2.0);
  EXPECT_EQ(retries.AfterFailure({}), 3.0);
  EXPECT_EQ(retries.AfterFailure({}), 3.0);
  EXPECT_EQ(retries.AfterFailure({}), std::nullopt);
}

TEST(RetryTest, ProgressStartsTheCountAgain) {
  Retries retries({.most_tries = 2, .first_wait = 1.0});
  EXPECT_TRUE(retries.AfterFailure({}));
  retries.Progressed();
  EXPECT_EQ(retries.AfterFailure({}), 1.0);
  EXPECT_FALSE(retries.AfterFailure({}));
}

TEST(RetryTest, AServerMayAskForTime) {
  Retries retries({.most_tries = 9, .first_wait = 1.0, .longest_asked = 60.0});
  EXPECT_EQ(retries.AfterFailure(50.0), 50.0);
  EXPECT_EQ(retries.AfterFailure(0.0), 2.0);
  EXPECT_EQ(retries.AfterFailure(61.0), std::nullopt);
}

TEST(RetryTest, ManyFailuresDoNotOverflow) {
  Retries retries({.most_tries = 5000, .first_wait = 1.0, .longest_wait = 30.0});
  for (int i = 0; i < 4000; ++i) retries.AfterFailure({});
  EXPECT_EQ(retries.AfterFailure({}), 30.0);
}

TEST(RetryTest, StatusesThatPass) {
  for (const int status : {408, 425, 429, 500, 502, 503, 504}) EXPECT_TRUE(IsPassing(status));
  for (const int status : {200, 206, 302, 400, 401, 403, 404, 416, 501}) {
    EXPECT_FALSE(IsPassing(status)) << status;
  }
}

}  // namespace
}  // namespace moestro
