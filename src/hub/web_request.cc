// SPDX-License-Identifier: MIT
#include "hub/web_request.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/text.h"

namespace moestro {
namespace {

// "host", "host:8080", "[::1]:8080"; empty: none.
std::string_view AuthorityOf(std::string_view address) {
  const size_t begin = address.find("://");
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = address.substr(begin + 3);
  return rest.substr(0, rest.find_first_of("/?#\\"));
}

std::string_view HostOf(std::string_view authority) {
  if (authority.starts_with('[')) return authority.substr(0, authority.find(']') + 1);
  return authority.substr(0, authority.find(':'));
}

}  // namespace

std::optional<std::string> OriginOf(std::string_view address) {
  // Refuses such bytes, because programs differ in where a host ends before them: libcurl takes
  // "a\\@b" for b's.
  const auto is_plain = [](char c) { return c > ' ' && c < 0x7f && c != '\\'; };
  if (!std::ranges::all_of(address, is_plain)) return std::nullopt;
  const std::string scheme = LowerCase(address.substr(0, address.find("://")));
  if (scheme != "https" && scheme != "http") return std::nullopt;
  const std::string_view authority = AuthorityOf(address);
  const std::string_view host = HostOf(authority);
  if (host.empty() || authority.contains('@')) return std::nullopt;
  std::string_view port = authority.substr(host.size());
  if (!port.empty() && !port.starts_with(':')) return std::nullopt;
  if (!std::ranges::all_of(port.substr(port.empty() ? 0 : 1),
                           [](unsigned char c) { return std::isdigit(c) != 0; })) {
    return std::nullopt;
  }
  if (port == (scheme == "https" ? ":443" : ":80") || port == ":") port = {};
  return scheme + "://" + LowerCase(host) + std::string(port);
}

bool IsPlainHttp(std::string_view address) { return LowerCase(address).starts_with("http://"); }

bool IsLoopback(std::string_view address) {
  const std::string host = LowerCase(HostOf(AuthorityOf(address)));
  const bool is_number = host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "[::1]" || (is_number && host.starts_with("127."));
}

std::optional<double> Retries::AfterFailure(std::optional<double> asked) {
  if (++failures_ >= policy_.most_tries) return std::nullopt;
  const double doubled = std::ldexp(policy_.first_wait, std::min(failures_ - 1, 30));
  const double wait = std::min(doubled, policy_.longest_wait);
  if (!asked) return wait;
  if (!(*asked <= policy_.longest_asked)) return std::nullopt;
  return std::max(wait, *asked);
}

}  // namespace moestro
