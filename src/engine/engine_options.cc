// SPDX-License-Identifier: MIT
#include "engine/engine_options.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string_view>

#include "base/number.h"
#include "base/system_limits.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr size_t kLongestHost = 253;  // of a name of the Internet

bool IsHostCharacter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
         c == '-' || c == '_';
}

Result<RemoteHost> ParseHost(std::string_view text) {
  const size_t equals = std::min(text.find('='), text.size());
  const std::string_view address = text.substr(0, equals);
  const size_t colon = address.rfind(':');
  RemoteHost host;
  if (colon != std::string_view::npos) host.host = address.substr(0, colon);
  const bool is_host = !host.host.empty() && host.host.size() <= kLongestHost &&
                       host.host.front() != '-' && std::ranges::all_of(host.host, IsHostCharacter);
  const std::string_view digits = is_host ? address.substr(colon + 1) : std::string_view();
  const uint16_t port = ParseNumber<uint16_t>(digits).value_or(0);
  if (port == 0) {
    return Fail(Errc::kUsage, "'{}' is no HOST:PORT[=SIZE], as in 192.168.1.20:50052=12G",
                Printable(text, 300));
  }
  host.port = port;
  if (equals == text.size()) return host;
  TRY(host.bytes, ParseBytes(std::string(text.substr(equals + 1))));
  if (host.bytes == 0) return Fail(Errc::kUsage, "0 bytes on {} hold nothing", host.address());
  return host;
}

}  // namespace

std::string RemoteHost::address() const { return Format("{}:{}", host, port); }

Result<std::vector<RemoteHost>> ParseRemoteHosts(std::string_view text) {
  std::vector<RemoteHost> hosts;
  for (size_t at = 0; !text.empty() && at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    TRY(RemoteHost host, ParseHost(text.substr(at, comma - at)));
    at = comma + 1;
    const auto is_same = [&](const RemoteHost& other) { return other.address() == host.address(); };
    if (std::ranges::any_of(hosts, is_same)) {
      return Fail(Errc::kUsage, "{} is named twice; a server takes one client", host.address());
    }
    hosts.push_back(std::move(host));
    if (hosts.size() > kMostRemoteHosts) {
      return Fail(Errc::kUsage, "more than {} hosts; ggml's client takes no more",
                  kMostRemoteHosts);
    }
  }
  return hosts;
}

std::string ToText(const std::vector<RemoteHost>& hosts) {
  std::string text;
  for (const RemoteHost& host : hosts) {
    text += Format("{}{}", text.empty() ? "" : ",", host.address());
    if (host.bytes > 0) text += Format("={}", host.bytes);
  }
  return text;
}

bool IsLoopback(uint32_t ipv4) { return ipv4 >> 24U == 127; }

bool IsPrivate(uint32_t ipv4) {
  const bool is_link_local = ipv4 >> 16U == 0xA9FE;  // 169.254/16
  return ipv4 >> 24U == 10 || ipv4 >> 20U == 0xAC1 || ipv4 >> 16U == 0xC0A8 || is_link_local;
}

Result<CacheSize> ParseCacheSize(const std::string& text) {
  CacheSize size;
  if (!text.ends_with('%')) {
    TRY(size.bytes, ParseBytes(text));
    if (size.bytes == 0) return Fail(Errc::kUsage, "a cache of 0 bytes cannot hold an expert");
    return size;
  }
  const std::string_view number(text.data(), text.size() - 1);
  size.percent = ParseNumber<double>(number).value_or(0.0);
  if (!(size.percent > 0.0) || size.percent > 100.0) {
    return Fail(Errc::kUsage, "'{}' is not a share of the experts; write for example 25%", text);
  }
  return size;
}

uint32_t ResolveThreads(uint32_t threads) { return threads > 0 ? threads : PhysicalCores(); }

std::string_view NameOf(CostSource source) {
  switch (source) {
    case CostSource::kMeasured:
      return "measured";
    case CostSource::kKept:
      return "kept";
    case CostSource::kFile:
      return "file";
  }
  return "";
}

}  // namespace moestro
