// SPDX-License-Identifier: MIT
// Gathers facts from /proc, /sys, /dev and the environment. Missing, huge and senseless files leave
// facts empty; nothing here fails.
//
// Thread rule: one thread, because the environment is read.
#pragma once

#include <string>
#include <string_view>

#include "doctor/system_facts.h"

namespace moestro {

// `root` stands before /proc, /sys, /dev, /run, /etc and /usr: a folder of files made up, for
// tests. Facts that need libraries (`ring`, `ggml`, devices in `graphics`) are left as they are.
void ReadSystemFacts(const std::string& root, SystemFacts& facts);

// Reads the folders that grow while models are used, and the free space of their disks. `models`:
// the folder of models from a hub; empty: none.
void ReadFolderFacts(const std::string& models, SystemFacts& facts);

// Facts that need a trial: whether the kernel gives an io_uring, which of ggml's plug-ins this CPU
// runs, which devices their drivers find. Loads ggml's plug-ins.
//
// Thread rule: one thread, no engine in the same process.

// Adds to `ring`, `ggml` and `graphics`.
void ReadLibraryFacts(SystemFacts& facts);

RingState RingStateOf(int error);  // of an errno value

// "/usr/lib/libllama.so.0.7.0": "0.7.0"; empty without a number.
std::string VersionInName(std::string_view path);

}  // namespace moestro
