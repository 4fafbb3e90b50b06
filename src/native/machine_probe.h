// SPDX-License-Identifier: MIT
// Measures a machine and its devices without an engine.
//
// Thread rule: one thread, and no engine is open: it takes the compute threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/machine.h"
#include "decide/devices/latency_model.h"
#include "learned/machine_files.h"

namespace moestro {

// Measures a machine without a model, in about two seconds (core/machine.h).

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

// Lists the devices of this machine and measures their speed, for code that has no engine.
//
// Thread rule: one thread at a time, and no engine in the same process.

std::vector<DeviceInfo> ListDevices();
std::string_view KindName(DeviceKind kind);

struct ProfileRequest {
  uint32_t threads = 0;  // threads of the CPU; 0: physical cores
  // The model whose experts are measured, and the disk that holds its file. Empty: an expert like
  // those of large models (2048 wide, 768 hidden, Q4_K, random weights), and no disk.
  std::string model = {};
  // The folder of kept costs (learned/kept_facts.h). The new costs of the device replace the old
  // ones. Empty: costs are not kept.
  std::string cost_folder = {};
  bool pins_slow_memory = false;  // as in DeviceOptions
};

struct DeviceProfile {
  LatencyModel latency;      // with this device alone
  double difference = 0.0;   // distance from the CPU's results, as a share (mean squares)
  bool from_pinned = false;  // copies are from pinned memory
};

// Measures the costs of an expert on the device and on the CPU, in less than two seconds. kDevice:
// the device does not start, has too little memory or does not compute such experts; errors of
// reading a model.
Result<DeviceProfile> ProfileDevice(const DeviceInfo& info, const ProfileRequest& request);

// Measures the device that a run with `names` (DeviceOptions::name) would use first. No device in
// the result: "cpu", or "auto" finds none that computes such experts. kUsage: an unknown name; for
// a name that is given errors of ProfileDevice().
Result<LatencyFile> ProfileFirst(const std::string& names, const ProfileRequest& request);

}  // namespace moestro
