// SPDX-License-Identifier: MIT
// The address behind a host's name, if it may be talked to: ggml's protocol has no key and is not
// encrypted.
//
// Thread rule: any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/remote_hosts.h"

namespace moestro {

// "192.168.1.20:50052": of the numbers that the name means, the first, so that nothing later can
// mean another one. Connects to it once. kUsage: it is neither this machine's nor in a private
// network, and `takes_public` is false. kDevice: the name means nothing, or nothing answers there
// in two seconds.
Result<std::string> ResolveHost(const RemoteHost& host, bool takes_public);

}  // namespace moestro
