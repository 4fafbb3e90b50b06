// SPDX-License-Identifier: MIT
#include "engine/engine_options.h"

#include <gtest/gtest.h>

#include "base/number.h"

namespace moestro {
namespace {

TEST(RemoteHosts, AreReadAsTheyAreWritten) {
  EXPECT_TRUE(ParseRemoteHosts("")->empty());
  const auto hosts = ParseRemoteHosts("box:50052=12G,192.168.1.20:1,a-b.local:65535=1M");
  ASSERT_TRUE(hosts) << hosts.error().message;
  ASSERT_EQ(hosts->size(), 3U);
  EXPECT_EQ((*hosts)[0], (RemoteHost{.host = "box", .port = 50052, .bytes = 12 * kGiB}));
  EXPECT_EQ((*hosts)[1], (RemoteHost{.host = "192.168.1.20", .port = 1}));
  EXPECT_EQ((*hosts)[2].address(), "a-b.local:65535");
  EXPECT_EQ(*ParseRemoteHosts(ToText(*hosts)), *hosts);
}

TEST(RemoteHosts, AnythingElseIsRefused) {
  for (const char* text : {"box", "box:", ":1", "box:0", "box:65536", "box:1 ", "box:1,", ",box:1",
                           "box:+1", "box:1=", "box:1=0", "box:1=x", "[::1]:1", "::1:1", "-H:1",
                           "b ox:1", "box:1,box:1=2G", "b\nx:1"}) {
    const auto hosts = ParseRemoteHosts(text);
    ASSERT_FALSE(hosts) << text;
    EXPECT_EQ(hosts.error().code, Errc::kUsage) << text;
  }
  EXPECT_FALSE(ParseRemoteHosts(std::string(300, 'a') + ":1"));
  std::string many = "h0:1";
  for (int i = 1; i < 17; ++i) many += ",h" + std::to_string(i) + ":1";
  EXPECT_FALSE(ParseRemoteHosts(many));
}

TEST(RemoteHosts, PrivateNetworksAreKnown) {
  const auto of = [](uint32_t a, uint32_t b) { return (a << 24U) | (b << 16U) | 0x0101U; };
  EXPECT_TRUE(IsLoopback(of(127, 0)));
  EXPECT_FALSE(IsLoopback(of(128, 0)));
  for (const uint32_t b : {16U, 20U, 31U}) EXPECT_TRUE(IsPrivate(of(172, b)));
  for (const uint32_t b : {15U, 32U}) EXPECT_FALSE(IsPrivate(of(172, b)));
  EXPECT_TRUE(IsPrivate(of(10, 9)));
  EXPECT_TRUE(IsPrivate(of(192, 168)));
  EXPECT_FALSE(IsPrivate(of(192, 169)));
  EXPECT_TRUE(IsPrivate(of(169, 254)));
  EXPECT_FALSE(IsPrivate(of(8, 8)));
  EXPECT_FALSE(IsPrivate(of(0, 0)));
}

TEST(ParseCacheSize, ReadsBytesAndShares) {
  EXPECT_EQ(ParseCacheSize("2G")->bytes, 2 * kGiB);
  EXPECT_EQ(ParseCacheSize("25%")->bytes, 0U);
  EXPECT_DOUBLE_EQ(ParseCacheSize("12.5%")->percent, 12.5);
}

TEST(ParseCacheSize, RefusesNonsense) {
  for (const char* text : {"", "%", "0%", "-3%", "101%", "nan%", "2 %", "x", "0"}) {
    const auto size = ParseCacheSize(text);
    ASSERT_FALSE(size.has_value()) << text;
    EXPECT_EQ(size.error().code, Errc::kUsage);
  }
}

TEST(ThreadsBesideDriver, FewCoresAllCompute) {
  EXPECT_EQ(ThreadsBesideDriver(1), 1U);
  EXPECT_EQ(ThreadsBesideDriver(3), 3U);
  EXPECT_EQ(ThreadsBesideDriver(4), 3U);
  EXPECT_EQ(ThreadsBesideDriver(64), 63U);
}

TEST(VramMargin, IsATwentiethAndNoLessThanAQuarterGiB) {
  EXPECT_EQ(VramMargin(0), 256 * kMiB);
  EXPECT_EQ(VramMargin(4096 * kMiB), 256 * kMiB);
  EXPECT_EQ(VramMargin(20480 * kMiB), 1024 * kMiB);
}

}  // namespace
}  // namespace moestro
