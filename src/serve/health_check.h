// SPDX-License-Identifier: MIT
// Checks whether a running server is ready, as containers and monitors do.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace moestro {

// Sends GET /health to an address that a server listens on; for an address that stands for all, to
// loopback. kIo: no answer within `seconds`, or the answer is not HTTP. kInvalidRequest: the answer
// is that the server is not ready.
Status CheckHealth(const std::string& host, uint16_t port, double seconds);

}  // namespace moestro
