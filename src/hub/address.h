// SPDX-License-Identifier: MIT
// Properties of a server's address. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moestro {

// "https://host:port" in lower case; nullopt: not http or https, no host, or user information,
// which is not taken. A port that is the scheme's own is left out.
std::optional<std::string> OriginOf(std::string_view address);
// The address is http and not https.
bool IsPlainHttp(std::string_view address);
// localhost, 127.x.x.x or [::1].
bool IsLoopback(std::string_view address);

}  // namespace moestro
