// SPDX-License-Identifier: MIT
// The rule that decides which requests are answered. The rule uses only headers that a page cannot
// forge in a browser. A page in a user's browser can send requests to this machine. If the page's
// owner points a name at this machine, the page can also read our replies (DNS rebinding). So the
// Host of a request must be a name of this server. A request of a page (Origin, Sec-Fetch-Site)
// must come from our own page or from a listed origin. A program that is no browser sends no
// Origin, and needs none. docs/security.md lists the threats. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace moestro {

struct AccessRules {
  bool has_keys = false;                  // true: the host is not checked
  std::vector<std::string> hosts = {};    // beside addresses and localhost; ParseHosts()
  std::vector<std::string> origins = {};  // allowed pages; ParseOrigins()
};

// The part of a request's head that the rule uses, as it came. nullopt: the head has no such line.
struct AskedFrom {
  std::string_view path;
  bool is_page = false;  // a file of our page, which other sites may link to
  std::optional<std::string> host = {};
  std::optional<std::string> origin = {};
  std::optional<std::string> fetch_site = {};
};

// The reply to a request that is refused.
struct Refusal {
  int status = 403;
  std::string message;
};

// The names in a list of --allowed-host, which commas part: in lower case, without a dot at the
// end. kUsage: a name has a scheme, a port, a wildcard, or a character that no name has.
Result<std::vector<std::string>> ParseHosts(std::string_view list);
// Parses the list of --cors, origins between commas, spelled as browsers spell them
// ("http://a.example", without the scheme's default port). kUsage: an origin that no browser sends,
// "null", or "*" beside other origins.
Result<std::vector<std::string>> ParseOrigins(std::string_view list);

// nullopt: the request is answered. 400: a needed Host is missing; 421: the Host is no name of this
// server; 403: pages of that origin are not allowed.
std::optional<Refusal> CheckAccess(const AccessRules& rules, const AskedFrom& asked);

// The header lines that let a page of a listed origin read a reply of any status. Vary makes caches
// keep replies by origin. Without an origin no page may read the reply.
std::vector<std::pair<std::string, std::string>> SharingHeaders(
    const AccessRules& rules, const std::optional<std::string>& origin);
// The header lines of the reply to a preflight, which a browser sends before a request with headers
// of the page's own. `headers`: the names of those headers.
std::vector<std::pair<std::string, std::string>> PreflightHeaders(
    const AccessRules& rules, const std::optional<std::string>& origin,
    const std::optional<std::string>& headers);

}  // namespace moestro
