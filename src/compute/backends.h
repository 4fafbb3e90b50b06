// SPDX-License-Identifier: MIT
// Loads ggml's plug-ins, no more than are needed: a GPU's driver takes a hundred megabytes of a
// budget that experts may need, and ggml's own "load all" loads it always. Plug-ins' messages are
// dropped, except errors.
//
// Thread rule: one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace moestro {

struct CpuVariant {
  std::string path;  // file of the plug-in
  int score = 0;     // the plug-in's own score on this machine; 0: cannot be used
};
// ggml's plug-ins for the CPU, one for each level of instruction sets, by name.
std::vector<CpuVariant> ListCpuVariants();
// The folder of ggml's plug-ins at build time.
std::string PlugInFolder();

// Loads the CPU's plug-in with the highest score on this machine, unless a CPU backend is loaded.
// If ggml's plug-ins are no longer in the folder of the build, loads all that ggml finds.
void LoadCpuBackend();

// Loads the CPU's plug-in, and those for GPUs that ggml has here.
void LoadDeviceBackends();

// The name of the first device of ggml's server on another machine. ggml's client ends the process
// if the server does not answer, has another version, or is lost later; so call this only in a
// process that may end. kUnsupported: ggml's client plug-in is not installed. kDevice: the server
// has no device.
Result<std::string> AddRemoteDevice(const std::string& address);

}  // namespace moestro
