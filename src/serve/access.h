// SPDX-License-Identifier: MIT
// Whose requests are answered, by what a browser cannot be made to lie about. A page that a user
// looks at can send requests to this machine, and a name of its own that it points here makes our
// replies readable to it (DNS rebinding). So a request must name a host that is ours (Host), and a
// page that sends one must be our own or a listed one (Origin, Sec-Fetch-Site). Programs that are
// no browsers send no Origin and are not asked for one. docs/security.md has the threats. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace moestro {

struct AccessRules {
  bool has_keys = false;                  // then the host is not looked at
  std::vector<std::string> hosts = {};    // ours beside addresses and localhost; ParseHosts()
  std::vector<std::string> origins = {};  // whose pages may ask; ParseOrigins()
};

// What of a request's head matters. The texts are as they came; nullopt: there was no such line.
struct AskedFrom {
  std::string_view path;
  bool is_page = false;  // a file of our page, which other sites may lead to
  std::optional<std::string> host = {};
  std::optional<std::string> origin = {};
  std::optional<std::string> fetch_site = {};
};

// Why a request is not answered.
struct Refusal {
  int status = 403;
  std::string message;
};

// Names, between commas, as --allowed-host takes them: in lower case, without a dot at the end.
// kUsage: one has a scheme, a port, a wildcard or what no name has.
Result<std::vector<std::string>> ParseHosts(std::string_view list);
// Origins, between commas, as --cors takes them: spelled as browsers do ("http://a.example", no
// port where it is the scheme's own). kUsage: one that no browser sends, "null", or "*" beside
// others.
Result<std::vector<std::string>> ParseOrigins(std::string_view list);

// 400 for a Host that is none, 421 for one that is not ours, 403 for a page that may not ask.
std::optional<Refusal> CheckAccess(const AccessRules& rules, const AskedFrom& asked);

// The header lines that let the page of a listed origin read a reply, whatever its status; what a
// reply depends on is said to caches. No origin: none may.
std::vector<std::pair<std::string, std::string>> SharingHeaders(
    const AccessRules& rules, const std::optional<std::string>& origin);
// What a browser asks before it sends a request with headers of its own. `headers`: those it names.
std::vector<std::pair<std::string, std::string>> PreflightHeaders(
    const AccessRules& rules, const std::optional<std::string>& origin,
    const std::optional<std::string>& headers);

}  // namespace moestro
