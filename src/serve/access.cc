// SPDX-License-Identifier: MIT
#include "serve/access.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr std::string_view kAll = "*";
constexpr size_t kLongestAsked = 1024;  // length of the header names in a preflight

// Unlike <cctype>, these do not depend on the locale.
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLowerLetter(char c) { return c >= 'a' && c <= 'z'; }

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

bool IsAddress(const std::string& host) {
  if (host.contains('\0')) return false;  // inet_pton() would stop there
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  if (host.starts_with('[') && host.ends_with(']')) {
    return inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), bytes.data()) == 1;
  }
  return inet_pton(AF_INET, host.c_str(), bytes.data()) == 1;
}

// True for labels of letters, digits, '-' and '_' with dots between them, in lower case.
bool IsName(std::string_view host) {
  constexpr size_t kLongestName = 253;
  if (host.empty() || host.size() > kLongestName || host.starts_with('.')) return false;
  if (host.contains("..")) return false;
  return std::ranges::all_of(host, [](char c) {
    return IsLowerLetter(c) || IsDigit(c) || c == '-' || c == '_' || c == '.';
  });
}

// A host and an optional port, as in the headers Host and Origin.
struct HostPort {
  std::string host;              // lower case; an IPv6 address keeps its brackets
  std::optional<uint16_t> port;  // none: the scheme's default
};

// Parses "name", "name:80", "10.0.0.1:80", "[::1]:80". nullopt: any other text.
std::optional<HostPort> ParseHostPort(std::string_view text) {
  HostPort place;
  const size_t bracket = text.find(']');
  const size_t colon = text.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    text = text.substr(0, colon);
    if (!digits.empty()) {
      place.port = ParseNumber<uint16_t>(digits);
      if (!place.port) return std::nullopt;
    }
  }
  place.host = Lower(text);
  if (place.host.ends_with('.')) place.host.pop_back();  // the root's
  if (!IsAddress(place.host) && !IsName(place.host)) return std::nullopt;
  return place;
}

struct PageOrigin {
  std::string scheme;
  HostPort place;
};

std::optional<uint16_t> PortOf(std::string_view scheme) {
  if (scheme == "http") return 80;
  if (scheme == "https") return 443;
  return std::nullopt;
}

// Parses "scheme://host" or "scheme://host:port" and nothing more. nullopt: any other text.
std::optional<PageOrigin> ParseOrigin(std::string_view text) {
  const size_t end = text.find("://");
  if (end == std::string_view::npos || end == 0) return std::nullopt;
  PageOrigin origin{.scheme = Lower(text.substr(0, end)), .place = {}};
  const bool is_scheme =
      IsLowerLetter(origin.scheme.front()) && std::ranges::all_of(origin.scheme, [](char c) {
        return IsLowerLetter(c) || IsDigit(c) || c == '-' || c == '+' || c == '.';
      });
  std::optional<HostPort> place = ParseHostPort(text.substr(end + 3));
  if (!is_scheme || !place || text.ends_with(':')) return std::nullopt;
  origin.place = *std::move(place);
  if (origin.place.port == PortOf(origin.scheme)) origin.place.port.reset();
  return origin;
}

std::string Spelled(const PageOrigin& origin) {
  const std::string base = Format("{}://{}", origin.scheme, origin.place.host);
  return origin.place.port ? Format("{}:{}", base, *origin.place.port) : base;
}

std::vector<std::string_view> Split(std::string_view list) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view part = list.substr(0, comma);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    parts.push_back(part);
    if (comma == list.size()) return parts;
    list.remove_prefix(comma + 1);
  }
}

bool Has(const std::vector<std::string>& list, std::string_view value) {
  return std::ranges::find(list, value) != list.end();
}

bool IsListed(const AccessRules& rules, std::string_view origin) {
  const std::optional<PageOrigin> parsed = ParseOrigin(origin);
  if (!parsed) return false;  // such as "null"
  return Has(rules.origins, kAll) || Has(rules.origins, Spelled(*parsed));
}

// The page came from where the request goes.
bool IsOwnPage(std::string_view origin, const std::optional<std::string>& host) {
  const std::optional<PageOrigin> page = ParseOrigin(origin);
  const std::optional<uint16_t> standard = page ? PortOf(page->scheme) : std::nullopt;
  if (!standard || !host) return false;
  const std::optional<HostPort> here = ParseHostPort(*host);
  return here && here->host == page->place.host &&
         here->port.value_or(*standard) == page->place.port.value_or(*standard);
}

std::optional<Refusal> CheckHost(const AccessRules& rules, const AskedFrom& asked) {
  if (rules.has_keys) return std::nullopt;
  if (!asked.host) {
    if (asked.path == "/health" || asked.path == "/v1/health") return std::nullopt;
    return Refusal{.status = 400, .message = "the request names no host; send a Host header"};
  }
  const std::optional<HostPort> here = ParseHostPort(*asked.host);
  if (here && (IsAddress(here->host) || here->host == "localhost" || Has(rules.hosts, here->host)))
    return std::nullopt;
  return Refusal{
      .status = 421,
      .message = Format("\"{}\" is no name of this server; use its address, or start it with "
                        "--allowed-host {}",
                        Printable(*asked.host, 100), here ? here->host : "NAME")};
}

std::optional<Refusal> CheckPage(const AccessRules& rules, const AskedFrom& asked) {
  if (asked.origin) {
    if (IsListed(rules, *asked.origin) || IsOwnPage(*asked.origin, asked.host)) return std::nullopt;
    const std::optional<PageOrigin> page = ParseOrigin(*asked.origin);
    return Refusal{.status = 403,
                   .message = Format("pages of \"{}\" may not ask this server{}",
                                     Printable(*asked.origin, 100),
                                     page ? Format("; start it with --cors {}, or let the proxy "
                                                   "before it pass the Host header on",
                                                   Spelled(*page))
                                          : "")};
  }
  // A browser that sends no Origin still sends Sec-Fetch-Site for a request from another site.
  const std::string site = Lower(asked.fetch_site.value_or("none"));
  if (asked.is_page || site == "none" || site == "same-origin") return std::nullopt;
  return Refusal{.status = 403, .message = "pages of other sites may not ask for this"};
}

// Whether the text is a list of header names, which the reply may repeat.
bool IsListOfNames(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~, ";
  return text.size() <= kLongestAsked && std::ranges::all_of(text, [&](char c) {
           return IsLowerLetter(c) || (c >= 'A' && c <= 'Z') || IsDigit(c) || kMarks.contains(c);
         });
}

}  // namespace

Result<std::vector<std::string>> ParseHosts(std::string_view list) {
  std::vector<std::string> hosts;
  for (const std::string_view part : Split(list)) {
    const std::optional<HostPort> place = ParseHostPort(part);
    if (!place || part.contains(':')) {
      return Fail(Errc::kUsage,
                  "\"{}\" is no name of a host; write it without scheme, port and wildcard, like "
                  "llm.example",
                  Printable(part, 100));
    }
    hosts.push_back(place->host);
  }
  return hosts;
}

Result<std::vector<std::string>> ParseOrigins(std::string_view list) {
  std::vector<std::string> origins;
  const std::vector<std::string_view> parts = Split(list);
  for (const std::string_view part : parts) {
    if (part == kAll && parts.size() > 1) {
      return Fail(Errc::kUsage, "\"*\" means every origin; leave the others out, or \"*\"");
    }
    if (part == kAll) return std::vector<std::string>{std::string(kAll)};
    const std::optional<PageOrigin> origin = ParseOrigin(part);
    if (!origin) {
      return Fail(Errc::kUsage,
                  "\"{}\" is no origin; write scheme, host and port as the browser does, without "
                  "a path or a \"/\" at the end, like http://app.example:3000{}",
                  Printable(part, 100),
                  Lower(part) == "null" ? "; \"null\" is what any page can be" : "");
    }
    origins.push_back(Spelled(*origin));
  }
  return origins;
}

std::optional<Refusal> CheckAccess(const AccessRules& rules, const AskedFrom& asked) {
  if (auto refusal = CheckHost(rules, asked)) return refusal;
  return CheckPage(rules, asked);
}

std::vector<std::pair<std::string, std::string>> SharingHeaders(
    const AccessRules& rules, const std::optional<std::string>& origin) {
  std::vector<std::pair<std::string, std::string>> headers;
  if (rules.origins.empty()) return headers;
  headers.emplace_back("Vary", "Origin");
  if (!origin || !IsListed(rules, *origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", *origin);
  headers.emplace_back("Access-Control-Expose-Headers",
                       "Retry-After, X-Moestro-Warning, X-Request-Id, X-Session-Id");
  return headers;
}

std::vector<std::pair<std::string, std::string>> PreflightHeaders(
    const AccessRules& rules, const std::optional<std::string>& origin,
    const std::optional<std::string>& headers) {
  if (!origin || !IsListed(rules, *origin)) return {};
  std::vector<std::pair<std::string, std::string>> reply = {
      {"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
      {"Access-Control-Max-Age", "86400"}};
  if (headers && IsListOfNames(*headers)) {
    reply.emplace_back("Access-Control-Allow-Headers", *headers);
  }
  return reply;
}

}  // namespace moestro
