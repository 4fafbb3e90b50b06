// SPDX-License-Identifier: MIT
// Facts that need a trial: whether the kernel gives an io_uring, which of ggml's plug-ins this CPU
// runs, which devices their drivers find. Loads ggml's plug-ins.
//
// Thread rule: one thread, no engine in the same process.
#pragma once

#include <string>
#include <string_view>

#include "doctor/system_facts.h"

namespace moestro {

// Adds to `ring`, `ggml` and `graphics`.
void ReadLibraryFacts(SystemFacts& facts);

RingState RingStateOf(int error);  // of an errno value

// "/usr/lib/libllama.so.0.7.0": "0.7.0"; empty without a number.
std::string VersionInName(std::string_view path);

}  // namespace moestro
