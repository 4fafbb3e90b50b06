// SPDX-License-Identifier: MIT
// The address behind a host's name, if the host may be used: ggml's protocol has no key and is not
// encrypted.
//
// Thread rule: any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/remote_hosts.h"

namespace moestro {

// "192.168.1.20:50052": the first address of the name, as a number, so that no later lookup can
// give another one. Connects to it once. kUsage: the address is neither this machine's nor in a
// private network, and `takes_public` is false. kDevice: the name has no address, or no host
// answers at the address in two seconds.
Result<std::string> ResolveHost(const RemoteHost& host, bool takes_public);

}  // namespace moestro
