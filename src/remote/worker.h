// SPDX-License-Identifier: MIT
// The process that serves one remote host. ggml's client ends its process when the host goes, so
// the client runs in a process of its own, whose last words on stderr are the reason.
#pragma once

#include <string_view>

namespace moestro {

// The program's first argument for this process; worker_process.h starts it with the descriptors
// below.
inline constexpr std::string_view kWorkerArgument = "remote-worker";
inline constexpr int kWorkerLaunches = 3;  // socket
inline constexpr int kWorkerWrites = 4;    // socket
inline constexpr int kWorkerMemory = 5;

// Serves until the engine's process is gone. The exit code.
int RemoteWorkerMain();

}  // namespace moestro
