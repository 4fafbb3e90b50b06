// SPDX-License-Identifier: MIT
// Measures a machine without a model, in about two seconds (core/machine_rates.h).
//
// Thread rule: one thread, and no engine is open: it takes the compute threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/machine_rates.h"

namespace moestro {

// The disk that models lie on, or will.
struct ProbedDisk {
  std::string folder = {};  // where a file of 256 MiB is written, read and removed
  std::string file = {};    // a large file there, read instead; empty: none
};

struct MachineProbe {
  uint32_t threads = 0;            // that compute; 0: physical cores
  std::vector<std::string> types;  // of weights, by ggml's names
  ProbedDisk disk = {};
};

// The processor's name with its threads, as MachineRates::cpu has it. What CpuDevice::Open() says.
Result<std::string> ProcessorName(uint32_t threads);

// Rates of these types alone. kNoMemory; kInvalidRequest: an unknown type.
Result<std::vector<KernelRate>> MeasureKernels(uint32_t threads,
                                               const std::vector<std::string>& types);

// Rates of what `probe` asks for. kNoMemory; kIo: the disk; kInvalidRequest: an unknown type.
Result<MachineRates> MeasureMachine(const MachineProbe& probe);

}  // namespace moestro
