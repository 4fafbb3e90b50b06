// SPDX-License-Identifier: MIT
#include "hub/hub_settings.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/terminal.h"
#include "base/text.h"
#include "hub/web_request.h"

namespace moestro {
namespace {

constexpr std::string_view kPublicEndpoint = "https://huggingface.co";
constexpr size_t kMostTokenBytes = 4096;

// The value of a variable; empty if it is not set.
std::string Value(const Environment& environment, const std::string& name) {
  return environment(name).value_or("");
}

// Expands "~" as shells do in a word; the hub's own client expands it in values of variables.
std::string WithHome(const std::string& path, const Environment& environment) {
  if (path != "~" && !path.starts_with("~/")) return path;
  return Value(environment, "HOME") + path.substr(1);
}

// The hub's folder; empty: no variable names one.
std::string HubHome(const Environment& environment) {
  if (const std::string home = Value(environment, "HF_HOME"); !home.empty()) {
    return WithHome(home, environment);
  }
  if (const std::string cache = Value(environment, "XDG_CACHE_HOME"); !cache.empty()) {
    return WithHome(cache, environment) + "/huggingface";
  }
  if (const std::string home = Value(environment, "HOME"); !home.empty()) {
    return home + "/.cache/huggingface";
  }
  return {};
}

std::string CacheOf(const Environment& environment) {
  for (const char* name : {"LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    std::string folder = WithHome(Value(environment, name), environment);
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    if (!folder.empty()) return folder;
  }
  const std::string home = HubHome(environment);
  return home.empty() ? "" : home + "/hub";
}

bool IsYes(std::string_view text) {
  const std::string lower = LowerCase(WithoutBlanks(text));
  return lower == "1" || lower == "true" || lower == "yes" || lower == "on";
}

Result<std::string> TokenOf(const Environment& environment, const SmallFileReader& read_file) {
  std::string where = "HF_TOKEN";
  std::string text = Value(environment, "HF_TOKEN");
  if (WithoutBlanks(text).empty()) {
    where = WithHome(Value(environment, "HF_TOKEN_PATH"), environment);
    if (where.empty()) where = HubHome(environment) + "/token";
    text = read_file(where).value_or("");
  }
  const std::string_view token = WithoutBlanks(text);
  const bool is_clean = std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; });
  if (is_clean && token.size() <= kMostTokenBytes) return std::string(token);
  return Fail(Errc::kUsage, "the token in {} has characters that no token has; write it anew",
              Printable(where));
}

Result<std::string> EndpointOf(const Environment& environment) {
  std::string endpoint(WithoutBlanks(Value(environment, "HF_ENDPOINT")));
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if (endpoint.empty()) return std::string(kPublicEndpoint);
  const bool is_plain = endpoint.find_first_of("?#\\\"<>") == std::string::npos &&
                        std::ranges::all_of(endpoint, [](char c) { return c > ' ' && c <= '~'; });
  if (is_plain && OriginOf(endpoint)) return endpoint;
  return Fail(Errc::kUsage, "HF_ENDPOINT is '{}', which is no address; write https://HOST",
              Printable(endpoint));
}

}  // namespace

bool MayHaveToken(const HubSettings& settings, std::string_view address) {
  const auto origin = OriginOf(address);
  if (settings.token.empty() || !origin || origin != OriginOf(settings.endpoint)) return false;
  return !IsPlainHttp(address) || IsLoopback(address);
}

Result<HubSettings> ReadHubSettings(const Environment& environment,
                                    const SmallFileReader& read_file) {
  HubSettings settings;
  TRY(settings.endpoint, EndpointOf(environment));
  TRY(settings.token, TokenOf(environment, read_file));
  settings.cache = CacheOf(environment);
  settings.is_offline = IsYes(Value(environment, "HF_HUB_OFFLINE"));
  return settings;
}

Result<HubSettings> ReadHubSettings() {
  const auto variable = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  };
  const auto small_file = [](const std::string& path) -> std::optional<std::string> {
    // The file may be a pipe, as a shell's <(command) is: reading then waits, as the hub's own
    // client does.
    std::ifstream file(path, std::ios::binary);
    std::string text(kMostTokenBytes + 2, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
    return text;
  };
  return ReadHubSettings(variable, small_file);
}

}  // namespace moestro
