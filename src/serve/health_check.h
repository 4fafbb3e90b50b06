// SPDX-License-Identifier: MIT
// Asks a running server whether it is ready, as containers and monitors do.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace moestro {

// GET /health at an address that a server was told to listen on; one that stands for all addresses
// is asked by loopback. kIo: nobody answers within `seconds`, or the answer is not HTTP.
// kInvalidRequest: the server says that it is not ready.
Status CheckHealth(const std::string& host, uint16_t port, double seconds);

}  // namespace moestro
