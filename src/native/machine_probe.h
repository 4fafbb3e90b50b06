// SPDX-License-Identifier: MIT
// Measures a machine without a model, in about two seconds (core/machine.h).
//
// Thread rule: one thread, and no engine is open: it takes the compute threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/machine.h"

namespace moestro {

// The disk of the models that are, or will be, used.
struct ProbedDisk {
  std::string folder = {};  // where a file of 256 MiB is written, read and removed
  std::string file = {};    // a large file that is read instead; empty: none
};

struct MachineProbe {
  uint32_t threads = 0;            // compute threads; 0: physical cores
  std::vector<std::string> types;  // ggml's names of the weights' types
  ProbedDisk disk = {};
};

// The processor's name with its threads, as in MachineRates::cpu. Errors of CpuDevice::Open().
Result<std::string> ProcessorName(uint32_t threads);

// Rates of `types` alone. kNoMemory; kInvalidRequest: an unknown type.
Result<std::vector<KernelRate>> MeasureKernels(uint32_t threads,
                                               const std::vector<std::string>& types);

// Rates of the disk, the types and the threads in `probe`. kNoMemory; kIo: the disk;
// kInvalidRequest: an unknown type.
Result<MachineRates> MeasureMachine(const MachineProbe& probe);

}  // namespace moestro
