// SPDX-License-Identifier: MIT
#include "hub/hub_settings.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "hub/web_request.h"

namespace moestro {
namespace {

using Values = std::map<std::string, std::string>;

Result<HubSettings> Read(const Values& variables, const Values& files = {}) {
  const auto find = [](const Values& in) {
    return [&in](const std::string& name) -> std::optional<std::string> {
      const auto found = in.find(name);
      return found != in.end() ? std::optional<std::string>(found->second) : std::nullopt;
    };
  };
  return ReadHubSettings(find(variables), find(files));
}

TEST(HubSettingsTest, WithoutVariables) {
  const auto settings = Read({{"HOME", "/var/me"}});
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->endpoint, "https://huggingface.co");
  EXPECT_EQ(settings->token, "");
  EXPECT_EQ(settings->cache, "/var/me/.cache/huggingface/hub");
  EXPECT_FALSE(settings->is_offline);
  EXPECT_EQ(Read({})->cache, "");
}

TEST(HubSettingsTest, TheFirstVariableNamesTheCache) {
  Values variables = {{"HOME", "/var/me"}};
  const auto expect = [&](const std::string& name, const std::string& value,
                          const std::string& cache) {
    variables[name] = value;
    EXPECT_EQ(Read(variables)->cache, cache) << name;
  };
  expect("XDG_CACHE_HOME", "/var/xdg", "/var/xdg/huggingface/hub");
  expect("HF_HOME", "~/hf", "/var/me/hf/hub");
  expect("HUGGINGFACE_HUB_CACHE", "/old/", "/old");
  expect("HF_HUB_CACHE", "/hub", "/hub");
  expect("LLAMA_CACHE", "/llama", "/llama");
  expect("LLAMA_CACHE", "", "/hub");
}

TEST(HubSettingsTest, TheTokenIsAVariableOrAFile) {
  EXPECT_EQ(Read({{"HF_TOKEN", " hf_x\n"}})->token, "hf_x");
  EXPECT_EQ(Read({{"HF_HOME", "/var/hf"}}, {{"/var/hf/token", "hf_y\n"}})->token, "hf_y");
  EXPECT_EQ(Read({{"HF_TOKEN_PATH", "/t"}, {"HF_HOME", "/var/hf"}}, {{"/t", "hf_z"}})->token,
            "hf_z");
  EXPECT_EQ(Read({{"HF_TOKEN", "hf_x"}, {"HF_HOME", "/var/hf"}}, {{"/var/hf/token", "y"}})->token,
            "hf_x");
}

TEST(HubSettingsTest, ATokenThatNoHeaderCarriesIsRefusedAndNotShown) {
  const auto settings = Read({{"HF_TOKEN", "secret\r\nX-Evil: 1"}});
  ASSERT_FALSE(settings);
  EXPECT_EQ(settings.error().code, Errc::kUsage);
  EXPECT_TRUE(settings.error().message.contains("HF_TOKEN"));
  EXPECT_FALSE(settings.error().message.contains("secret"));
}

TEST(HubSettingsTest, EndpointsAreAddresses) {
  EXPECT_EQ(Read({{"HF_ENDPOINT", "https://mirror.test/hub/"}})->endpoint,
            "https://mirror.test/hub");
  for (const char* text :
       {"mirror.test", "ftp://x", "https://", "https://a@b", "https://a b", "https://a?b"}) {
    EXPECT_FALSE(Read({{"HF_ENDPOINT", text}})) << text;
  }
}

TEST(HubSettingsTest, OfflineIsAVariable) {
  EXPECT_TRUE(Read({{"HF_HUB_OFFLINE", "1"}})->is_offline);
  EXPECT_TRUE(Read({{"HF_HUB_OFFLINE", "Yes"}})->is_offline);
  EXPECT_FALSE(Read({{"HF_HUB_OFFLINE", "0"}})->is_offline);
}

TEST(HubSettingsTest, TheTokenGoesToTheEndpointAlone) {
  HubSettings settings{.endpoint = "https://hub.test/x", .token = "t"};
  EXPECT_TRUE(MayHaveToken(settings, "https://HUB.test:443/y"));
  for (const char* address :
       {"https://hub.test.evil.test/", "https://hub.test:8443/", "http://hub.test/",
        "https://hub.test@evil.test/", "https://evil.test/?https://hub.test/", "hub.test",
        "https://hub.test\\@evil.test/", "https://hub.test\t@evil.test/",
        "https://hub.test/\xc2\xa0@evil.test/"}) {
    EXPECT_FALSE(MayHaveToken(settings, address)) << address;
  }
  settings.endpoint = "http://lan.test";  // anybody on the way could read it
  EXPECT_FALSE(MayHaveToken(settings, "http://lan.test/"));
  settings.endpoint = "http://127.0.0.1:1";
  EXPECT_TRUE(MayHaveToken(settings, "http://127.0.0.1:1/a"));
  EXPECT_FALSE(MayHaveToken(settings, "http://localhost:1/a"));
}

TEST(HubSettingsTest, LoopbackIsThisMachine) {
  for (const char* address : {"http://localhost/", "http://127.0.0.1:8/", "http://[::1]:8/x"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* address :
       {"http://127.evil.test/", "http://localhost.test/", "http://10.0.0.1"}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

}  // namespace
}  // namespace moestro
