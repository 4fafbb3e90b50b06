// SPDX-License-Identifier: MIT
#include "serve/access.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace moestro {
namespace {

using namespace std::string_literals;

int StatusFor(const AccessRules& rules, const AskedFrom& asked) {
  const auto refusal = CheckAccess(rules, asked);
  return refusal ? refusal->status : 200;
}

int StatusOfHost(const std::string& host) {
  return StatusFor({.hosts = {"box", "llm.example"}}, {.path = "/v1/models", .host = host});
}

int StatusOfPage(const std::string& origin, const std::string& host) {
  return StatusFor({.hosts = {"llm.example"}, .origins = {"http://listed.example"}},
                   {.path = "/v1/models", .host = host, .origin = origin});
}

std::string Header(const std::vector<std::pair<std::string, std::string>>& headers,
                   std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return "none";
}

TEST(Access, TakesAddressesAndNamesOfThisServer) {
  for (const char* host :
       {"127.0.0.1", "127.0.0.1:8080", "10.1.2.3:80", "[::1]", "[::1]:8080", "[::ffff:127.0.0.1]",
        "[FE80::1]:80", "localhost", "localhost:1", "LocalHost:8080", "localhost.", "localhost.:80",
        "localhost:", "box", "BOX:8080", "llm.example", "llm.example.:443"}) {
    EXPECT_EQ(StatusOfHost(host), 200) << host;
  }
}

// Names of other hosts, and names that merely resemble an address.
TEST(Access, TakesNoOtherName) {
  for (const std::string& host : {"evil.example"s,
                                  "evil.example:8080"s,
                                  "box.evil.example"s,
                                  "localhost.evil.example"s,
                                  "127.0.0.1.evil.example"s,
                                  "evil.localhost"s,
                                  "notlocalhost"s,
                                  "localhost.."s,
                                  "localhost@x"s,
                                  "evil.example@127.0.0.1"s,
                                  "127.0.0.1@evil.example"s,
                                  "127.0.0.1, evil.example"s,
                                  "evil.example 127.0.0.1"s,
                                  "127.0.0.1/evil.example"s,
                                  "127.0.0.1#"s,
                                  "127.0.0.1:80:90"s,
                                  "127.0.0.1:x"s,
                                  "127.0.0.1:99999"s,
                                  "127.0.0.1:-1"s,
                                  "http://127.0.0.1"s,
                                  "2130706433"s,
                                  "0x7f000001"s,
                                  "0x7f.1"s,
                                  "127.1"s,
                                  "0177.0.0.1"s,
                                  "127.0.0.1.5"s,
                                  "::1"s,
                                  "[::1"s,
                                  "[::1]x"s,
                                  "[evil.example]"s,
                                  "[::1]evil:80"s,
                                  "[::1%lo]"s,
                                  ""s,
                                  ":80"s,
                                  "."s,
                                  "127.0.0.1\0.evil.example"s,
                                  "[::1]\0.evil.example"s,
                                  "localhost\0"s,
                                  "l\xC3\xB6"
                                  "calhost"s,
                                  "localhost\t"s,
                                  std::string(100000, 'a'),
                                  std::string(100000, '[')}) {
    EXPECT_EQ(StatusOfHost(host), 421) << host.substr(0, 60);
  }
}

TEST(Access, TheRefusalOfAHostNamesTheFlag) {
  const auto refusal = CheckAccess({}, {.path = "/", .host = "Evil.example:80"});
  ASSERT_TRUE(refusal);
  EXPECT_TRUE(refusal->message.contains("--allowed-host evil.example")) << refusal->message;
  const auto odd = CheckAccess({}, {.path = "/", .host = "e\r\nvil"});
  ASSERT_TRUE(odd);
  EXPECT_FALSE(odd->message.contains('\n')) << odd->message;
}

TEST(Access, WithoutAHostOnlyTheHealthIsTold) {
  EXPECT_EQ(StatusFor({}, {.path = "/health"}), 200);
  EXPECT_EQ(StatusFor({}, {.path = "/v1/health"}), 200);
  EXPECT_EQ(StatusFor({}, {.path = "/v1/models"}), 400);
  EXPECT_EQ(StatusFor({}, {.path = "/", .is_page = true}), 400);
}

TEST(Access, WithKeysTheHostIsNotLookedAt) {
  EXPECT_EQ(StatusFor({.has_keys = true}, {.path = "/slots", .host = "evil.example"}), 200);
  EXPECT_EQ(StatusFor({.has_keys = true}, {.path = "/slots"}), 200);
  EXPECT_EQ(StatusFor({.has_keys = true},
                      {.path = "/slots", .host = "a.example", .origin = "http://b.example"}),
            403);
}

TEST(Access, TakesItsOwnPage) {
  EXPECT_EQ(StatusOfPage("http://127.0.0.1:8080", "127.0.0.1:8080"), 200);
  EXPECT_EQ(StatusOfPage("http://[::1]:8080", "[::1]:8080"), 200);
  EXPECT_EQ(StatusOfPage("http://localhost:8080", "LOCALHOST:8080"), 200);
  EXPECT_EQ(StatusOfPage("http://127.0.0.1", "127.0.0.1:80"), 200);
  EXPECT_EQ(StatusOfPage("http://127.0.0.1:80", "127.0.0.1"), 200);
  EXPECT_EQ(StatusOfPage("https://llm.example", "llm.example"), 200);  // a proxy with TLS
  EXPECT_EQ(StatusOfPage("https://llm.example", "llm.example:443"), 200);
}

TEST(Access, TakesNoOtherPage) {
  const std::string host = "127.0.0.1:8080";
  for (const std::string& origin : {"http://evil.example"s,
                                    "http://127.0.0.1"s,
                                    "http://127.0.0.1:3000"s,
                                    "https://127.0.0.1"s,
                                    "http://localhost:8080"s,
                                    "http://127.0.0.1:8080.evil.example"s,
                                    "http://127.0.0.1:8080@evil.example"s,
                                    "http://evil.example@127.0.0.1:8080"s,
                                    "null"s,
                                    "NULL"s,
                                    ""s,
                                    "*"s,
                                    "127.0.0.1:8080"s,
                                    "//127.0.0.1:8080"s,
                                    "file://"s,
                                    "file://127.0.0.1:8080"s,
                                    "chrome-extension://127.0.0.1:8080"s,
                                    "http://127.0.0.1:8080/"s,
                                    "http://127.0.0.1:8080 http://evil.example"s,
                                    "http://listed.example.evil.example"s,
                                    "http://sub.listed.example"s,
                                    "https://listed.example"s,
                                    "http://listed.example:81"s,
                                    "http://127.0.0.1:8080\0"s,
                                    std::string(100000, 'h')}) {
    EXPECT_EQ(StatusOfPage(origin, host), 403) << origin.substr(0, 60);
  }
  // A missing port is the scheme's default; without a Host no Origin is the server's own.
  EXPECT_EQ(StatusOfPage("http://127.0.0.1:8080", "127.0.0.1"), 403);
  EXPECT_EQ(StatusFor({.has_keys = true}, {.path = "/x", .origin = "http://a.example"}), 403);
}

TEST(Access, TakesListedPages) {
  EXPECT_EQ(StatusOfPage("http://listed.example", "127.0.0.1:8080"), 200);
  EXPECT_EQ(StatusOfPage("http://listed.example:80", "127.0.0.1:8080"), 200);
  EXPECT_EQ(StatusOfPage("HTTP://Listed.Example", "127.0.0.1:8080"), 200);
  EXPECT_EQ(StatusOfPage("http://listed.example", "evil.example"), 421);
}

TEST(Access, EveryPageIsListedByAStarButNoneWithoutAnOrigin) {
  const AccessRules rules{.has_keys = true, .origins = {"*"}};
  EXPECT_EQ(StatusFor(rules, {.path = "/x", .host = "h", .origin = "http://a.example"}), 200);
  EXPECT_EQ(StatusFor(rules, {.path = "/x", .host = "h", .origin = "null"}), 403);
}

TEST(Access, ProgramsThatSendNoOriginMayAsk) { EXPECT_EQ(StatusOfHost("127.0.0.1"), 200); }

// A picture, a script or a link of another page has no Origin.
TEST(Access, WhatABrowserFetchesForAnotherSiteIsRefused) {
  const auto status = [](const std::string& site, bool is_page) {
    return StatusFor(
        {.origins = {"http://listed.example"}},
        {.path = "/slots", .is_page = is_page, .host = "127.0.0.1", .fetch_site = site});
  };
  EXPECT_EQ(status("cross-site", false), 403);
  EXPECT_EQ(status("same-site", false), 403);
  EXPECT_EQ(status("Cross-Site", false), 403);
  EXPECT_EQ(status("future-word", false), 403);
  EXPECT_EQ(status("same-origin", false), 200);
  EXPECT_EQ(status("none", false), 200);       // typed by the user
  EXPECT_EQ(status("cross-site", true), 200);  // a link to the page
}

TEST(Access, RepliesAreReadableForListedPagesOnly) {
  const AccessRules rules{.origins = {"http://a.example", "http://b.example"}};
  const auto shared = SharingHeaders(rules, "http://b.example");
  EXPECT_EQ(Header(shared, "Access-Control-Allow-Origin"), "http://b.example");
  EXPECT_EQ(Header(shared, "Vary"), "Origin");
  for (const char* other : {"http://evil.example", "null", "*", "http://a.example.evil.example"}) {
    EXPECT_EQ(Header(SharingHeaders(rules, other), "Access-Control-Allow-Origin"), "none");
    EXPECT_EQ(Header(SharingHeaders(rules, other), "Vary"), "Origin");
    EXPECT_TRUE(PreflightHeaders(rules, other, "x-a").empty());
  }
  EXPECT_TRUE(SharingHeaders({}, "http://b.example").empty());
  EXPECT_TRUE(PreflightHeaders({}, "http://b.example", "x-a").empty());
  const AccessRules all{.has_keys = true, .origins = {"*"}};
  EXPECT_EQ(Header(SharingHeaders(all, "http://x.example"), "Access-Control-Allow-Origin"),
            "http://x.example");
  EXPECT_EQ(Header(SharingHeaders(all, "null"), "Access-Control-Allow-Origin"), "none");
}

TEST(Access, APreflightGetsTheHeadersItAskedFor) {
  const AccessRules rules{.origins = {"http://a.example"}};
  const auto headers =
      PreflightHeaders(rules, "http://a.example", "authorization, x-stainless-os,content-type");
  EXPECT_EQ(Header(headers, "Access-Control-Allow-Headers"),
            "authorization, x-stainless-os,content-type");
  EXPECT_TRUE(Header(headers, "Access-Control-Allow-Methods").contains("POST"));
  for (const std::string& odd : {"a\r\nSet-Cookie: b"s, "a: b"s, std::string(5000, 'a')}) {
    EXPECT_EQ(
        Header(PreflightHeaders(rules, "http://a.example", odd), "Access-Control-Allow-Headers"),
        "none");
  }
}

TEST(Access, OriginsAreSpelledAsBrowsersSendThem) {
  const auto origins = ParseOrigins(
      "http://A.example, https://b.example:443,http://c.example:8080,http://[::1]:3000,"
      "app://obsidian.md,chrome-extension://abc");
  ASSERT_TRUE(origins) << origins.error().message;
  EXPECT_EQ(*origins, (std::vector<std::string>{"http://a.example", "https://b.example",
                                                "http://c.example:8080", "http://[::1]:3000",
                                                "app://obsidian.md", "chrome-extension://abc"}));
  EXPECT_EQ(*ParseOrigins("*"), std::vector<std::string>{"*"});
}

TEST(Access, WhatNoBrowserSendsIsAUsageError) {
  for (const char* wrong :
       {"", "a.example", "http://", "http://a.example/", "http://a.example/path", "http:/a.example",
        "http://*.example", "null", "http://a.example,", "*,http://a.example", "http://u@a.example",
        "http://a.example:", "http://a.example:99999", "http://a b", "://a", "http://b\xC3\xBC.de",
        "http://a.example;http://b.example", "1http://a"}) {
    const auto origins = ParseOrigins(wrong);
    ASSERT_FALSE(origins) << wrong;
    EXPECT_EQ(origins.error().code, Errc::kUsage);
    EXPECT_GT(origins.error().message.size(), 20U);
  }
}

TEST(Access, AllowedHostsAreNamesAlone) {
  EXPECT_EQ(*ParseHosts("LLM.example., box"), (std::vector<std::string>{"llm.example", "box"}));
  for (const char* wrong : {"", "http://a", "a:80", "*", "*.example", "a,,b", "a b", "a/b"}) {
    const auto hosts = ParseHosts(wrong);
    ASSERT_FALSE(hosts) << wrong;
    EXPECT_EQ(hosts.error().code, Errc::kUsage);
  }
}

}  // namespace
}  // namespace moestro
