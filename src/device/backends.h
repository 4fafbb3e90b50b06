// SPDX-License-Identifier: MIT
// ggml's plug-ins, loaded as far as they are needed: a GPU's driver takes a hundred megabytes of a
// budget that experts may need. ggml's own "load all" knows no less. Both are quiet:
// plug-ins tell about themselves, only trouble is worth a line.
//
// Thread rule: one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace moestro {

struct CpuVariant {
  std::string path;  // of the plug-in
  int score = 0;     // what it is worth on this machine, by its own account; 0: nothing
};
// ggml's plug-ins for the CPU, one for each level of instruction sets, by name.
std::vector<CpuVariant> ListCpuVariants();
// Where ggml's plug-ins were at build time.
std::string PlugInFolder();

// The CPU's plug-in that is best on this machine, if no CPU backend is loaded. Where ggml's
// plug-ins are not where they were at build time, all that ggml finds.
void LoadCpuBackend();

// The CPU's, and those of GPUs that ggml has here.
void LoadDeviceBackends();

// The name of a device of ggml's server on another machine, its first. ggml's client ends the
// process if the server is not there, is another version's, or goes; so call it where that harms
// nothing. kUnsupported: ggml's plug-in for it is not installed. kDevice: it has no device.
Result<std::string> AddRemoteDevice(const std::string& address);

}  // namespace moestro
