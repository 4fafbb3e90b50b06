// SPDX-License-Identifier: MIT
#include "hub/model_name.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

constexpr const char* kEndpoint = "https://hub.test";
const std::string kTypedCommit(40, 'a');

ModelName Parse(const std::string& text, bool is_there = false) {
  const auto name = ParseModelName(text, kEndpoint, [&](const std::string&) { return is_there; });
  EXPECT_TRUE(name) << text << ": " << name.error().message;
  return name.value_or(ModelName{.path = "none"});
}

std::string Refusal(const std::string& text) {
  const auto name = ParseModelName(text, kEndpoint, [](const std::string&) { return false; });
  EXPECT_FALSE(name) << text << " is taken as " << TextOf(*name);
  if (name) return {};
  EXPECT_EQ(name.error().code, Errc::kUsage);
  return name.error().message;
}

ModelName Hub(const std::string& repo, const std::string& quantisation = {},
              const std::string& revision = "main", const std::string& file = {}) {
  return {.kind = ModelNameKind::kHub,
          .repo = repo,
          .revision = revision,
          .quantisation = quantisation,
          .file = file};
}

TEST(ModelNameTest, AnExistingPathWins) {
  EXPECT_EQ(Parse("owner/repo", true).kind, ModelNameKind::kPath);
  EXPECT_EQ(Parse("hf:owner/repo", true).path, "hf:owner/repo");
}

TEST(ModelNameTest, TakesWhatPeopleType) {
  EXPECT_EQ(Parse("owner/repo"), Hub("owner/repo"));
  EXPECT_EQ(Parse("owner/repo:q4_k_m"), Hub("owner/repo", "q4_k_m"));
  EXPECT_EQ(Parse("hf:owner/repo:UD-IQ2_XXS"), Hub("owner/repo", "UD-IQ2_XXS"));
  EXPECT_EQ(Parse("owner/repo@v1.0"), Hub("owner/repo", "", "v1.0"));
  EXPECT_EQ(Parse("owner/repo:Q8_0@refs/pr/3"), Hub("owner/repo", "Q8_0", "refs/pr/3"));
  EXPECT_EQ(Parse("owner/repo@" + kTypedCommit + ":Q8_0"), Hub("owner/repo", "Q8_0", kTypedCommit));
  EXPECT_EQ(Parse("hf:owner/repo/a/b.gguf"), Hub("owner/repo", "", "main", "a/b.gguf"));
  EXPECT_EQ(Parse("hf:owner/repo/b.gguf@v2"), Hub("owner/repo", "", "v2", "b.gguf"));
}

// A mistyped path is a missing file and no request to a server.
TEST(ModelNameTest, APathThatIsMissingStaysAPath) {
  for (const char* text :
       {"models/x.gguf", "a/b/c.gguf", "/no/such", "./a/b", "../a/b", "~/a/b", "model", "a/b/c",
        "a/.b", "a/b--c", "a/b..c", "a b/c", "a/b:", "a/b@", "a/b:x:y", "C:/x/y", ""}) {
    EXPECT_EQ(Parse(text).kind, ModelNameKind::kPath) << text;
    EXPECT_EQ(Parse(text).path, text);
  }
}

TEST(ModelNameTest, PagesOfTheHubAreItsNames) {
  EXPECT_EQ(Parse("https://hub.test/owner/repo"), Hub("owner/repo"));
  EXPECT_EQ(Parse("https://hub.test/owner/repo/"), Hub("owner/repo"));
  EXPECT_EQ(Parse("https://huggingface.co/owner/repo/tree/v2"), Hub("owner/repo", "", "v2"));
  EXPECT_EQ(Parse("https://hf.co/owner/repo/blob/main/a/b.gguf"),
            Hub("owner/repo", "", "main", "a/b.gguf"));
  EXPECT_EQ(Parse("https://hub.test/owner/repo/resolve/refs%2Fpr%2F1/b%20c.gguf?download=true"),
            Hub("owner/repo", "", "refs/pr/1", "b c.gguf"));
}

// As other tools have people type them.
TEST(ModelNameTest, HostsOfTheHubNeedNoScheme) {
  for (const std::string host :
       {"hf.co/", "huggingface.co/", "HuggingFace.co/", "www.huggingface.co/", "hub.test/",
        "https://hf.co/", "https://huggingface.co/", "https://hub.test/", "hf:", "hf://"}) {
    EXPECT_EQ(Parse(host + "owner/repo"), Hub("owner/repo")) << host;
    EXPECT_EQ(Parse(host + "owner/repo:Q4_K_M"), Hub("owner/repo", "Q4_K_M")) << host;
    EXPECT_EQ(Parse(host + "owner/repo:Q8_0@refs/pr/3"), Hub("owner/repo", "Q8_0", "refs/pr/3"));
    EXPECT_EQ(Parse(host + "owner/repo@v2"), Hub("owner/repo", "", "v2")) << host;
    EXPECT_EQ(Parse(host + "owner/repo/a/b.gguf"), Hub("owner/repo", "", "main", "a/b.gguf"));
    EXPECT_FALSE(Refusal(host + "owner").empty()) << host;
    EXPECT_FALSE(Refusal(host + "owner/repo:").empty()) << host;
    EXPECT_FALSE(Refusal(host + "owner/repo:Q4/x.gguf").empty()) << host;
    EXPECT_FALSE(Refusal(host + "../repo").empty()) << host;
    EXPECT_FALSE(Refusal(host + "owner/..").empty()) << host;
  }
  EXPECT_EQ(Parse("hf.co/owner/repo/"), Hub("owner/repo"));
  EXPECT_EQ(Parse("hf.co/owner/repo/blob/v2/a/b.gguf"), Hub("owner/repo", "", "v2", "a/b.gguf"));
  EXPECT_EQ(Parse("hf.co/owner/repo", true).kind, ModelNameKind::kPath) << "an existing path wins";
  EXPECT_EQ(Parse("hf.coffee/repo/x").kind, ModelNameKind::kPath);
  EXPECT_EQ(Parse("hf.co").kind, ModelNameKind::kPath);
  // Settings are read before an endpoint is known.
  const auto without =
      ParseModelName("hf.co/owner/repo:Q8_0", "", [](const std::string&) { return false; });
  EXPECT_EQ(without.value(), Hub("owner/repo", "Q8_0"));
  const auto in_folder =
      ParseModelName("models/a/b", "http://models", [](const std::string&) { return false; });
  EXPECT_EQ(in_folder.value().kind, ModelNameKind::kPath);
}

TEST(ModelNameTest, OtherAddressesAreOfGgufFiles) {
  EXPECT_EQ(Parse("https://files.test/x/y.gguf?sig=1").address,
            "https://files.test/x/y.gguf?sig=1");
  EXPECT_EQ(Parse("http://127.0.0.1:80/y.gguf").kind, ModelNameKind::kAddress);
  EXPECT_TRUE(Refusal("http://files.test/y.gguf").contains("https"));
  EXPECT_TRUE(Refusal("https://files.test/y.zip").contains(".gguf"));
  EXPECT_FALSE(Refusal("ftp://files.test/y.gguf").empty());
  EXPECT_FALSE(Refusal("https://user:word@files.test/y.gguf").empty());
  EXPECT_FALSE(Refusal("https:///y.gguf").empty());
  EXPECT_FALSE(Refusal("https://files.test/y\n.gguf").empty());
}

TEST(ModelNameTest, HostileNamesAreRefused) {
  for (const char* text :
       {"hf:", "hf:a", "hf:a/b/c", "hf:../b", "hf:a/..", "hf:a/b/../c.gguf", "hf:a/b//c.gguf",
        "hf:a/b:Q4/../x", "hf:a/b@../x", "hf:a/b@-/..", "hf:a/b/x.gguf:Q4_0", "hf:a/b/\n.gguf",
        "https://hub.test/a", "https://hub.test/a/b/blob/main/x.zip",
        "https://hub.test/a/b/blob/main/..%2f..%2fx.gguf",
        "https://hub.test/a/b/blob/%2e%2e/x.gguf", "https://hub.test/a/b/blob/main/x%00.gguf",
        "https://hub.test/a/b/blob/main/%zz.gguf"}) {
    EXPECT_FALSE(Refusal(text).empty()) << text;
  }
}

TEST(ModelNameTest, TextsAreReadBack) {
  for (const char* text :
       {"owner/repo", "owner/repo:Q4_K_M", "owner/repo:Q8_0@v2", "hf:owner/repo/a/b.gguf@v2",
        "hf:owner/repo.gguf", "https://files.test/y.gguf", "x.gguf"}) {
    EXPECT_EQ(TextOf(Parse(text)), text);
  }
}

TEST(ModelNameTest, PathsOfServersAreHeldBelowAFolder) {
  EXPECT_TRUE(IsSafePath("a/b c.gguf"));
  for (const std::string path : {"", "/a", "a/", "a//b", ".", "..", "a/../b", "a\nb", "a\\b"}) {
    EXPECT_FALSE(IsSafePath(path)) << path;
  }
  EXPECT_FALSE(IsSafePath(std::string("a\0b", 3)));
  EXPECT_FALSE(IsSafePath("a\xff"));
  EXPECT_FALSE(IsSafePath(std::string(300, 'a')));
}

}  // namespace
}  // namespace moestro
