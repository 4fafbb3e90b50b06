// SPDX-License-Identifier: MIT
// Machines whose memory holds experts beside this one's, as a user names them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moestro {

struct RemoteHost {
  std::string host = {};  // a name or an IPv4 address
  uint16_t port = 0;
  // Bytes that may be taken on the host; 0: the free memory there, less a margin.
  uint64_t bytes = 0;

  std::string address() const;  // "box:50052"
  bool operator==(const RemoteHost&) const = default;
};

// "HOST:PORT[=SIZE]", with commas between several; empty: none. kUsage: another form, an IPv6
// address (ggml's client takes none), a host twice, more than kMostRemoteHosts.
Result<std::vector<RemoteHost>> ParseRemoteHosts(std::string_view text);
std::string ToText(const std::vector<RemoteHost>& hosts);
inline constexpr size_t kMostRemoteHosts = 16;  // as many as ggml's client takes

// Addresses that may be reached without a flag: the machine itself and networks that no router
// passes on. ipv4: in the host's order.
bool IsLoopback(uint32_t ipv4);
bool IsPrivate(uint32_t ipv4);

}  // namespace moestro
