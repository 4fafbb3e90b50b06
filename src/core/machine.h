// SPDX-License-Identifier: MIT
// A machine as plain values: memory nodes, rows among threads, devices, speeds and costs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {

// A machine's memory nodes, as far as this process may use them.

struct NumaNode {
  uint32_t id = 0;                  // the kernel's number
  std::vector<uint32_t> cpus = {};  // on which this process may run, ascending; empty: memory alone
  uint32_t cores = 0;               // cores of `cpus`; hyper-threads of a core count once
  bool has_memory = false;          // the node has memory that this process may take
  bool operator==(const NumaNode&) const = default;
};

struct NumaTopology {
  std::vector<NumaNode> nodes = {};  // ascending; empty: not known, and treated as one node
  bool is_whole = false;             // this process may run on every CPU that is online
  bool operator==(const NumaTopology&) const = default;
};

// Division of a matrix's rows among the threads of a team: each thread gets a range of whole tiles,
// in the order of the threads.

// Kernels work on tiles of this many rows. Blocks and shares are whole tiles.
inline constexpr uint32_t kTileRows = 16;

constexpr uint64_t TilesOf(uint32_t rows) { return (uint64_t{rows} + kTileRows - 1) / kTileRows; }

// The first row of thread `thread` in a matrix. For thread == threads: the end of the rows.
constexpr uint32_t ShareBegin(uint32_t rows, uint32_t thread, uint32_t threads) {
  return std::min(rows, static_cast<uint32_t>(TilesOf(rows) * thread / threads) * kTileRows);
}

// Devices that compute beside the CPU, as plain values.

enum class DeviceKind : uint8_t {
  kCpu,
  kDiscrete,    // a GPU with memory of its own
  kIntegrated,  // a GPU that shares the CPU's memory
  kSoftware,    // the CPU in a GPU's clothes
  kRemote,      // another machine
};

struct DeviceInfo {
  std::string name = {};         // ggml's, "Vulkan0"
  std::string description = {};  // "NVIDIA GeForce RTX 4090"
  std::string backend = {};      // ggml's, "Vulkan"
  DeviceKind kind = DeviceKind::kDiscrete;
  uint64_t memory_total = 0;  // bytes
  uint64_t memory_free = 0;
};

// Speeds of a machine's parts, measured without a model. Predictions of a model's speed are made
// from them.

// Speed of multiplying weights of one tensor type on all compute threads.
struct KernelRate {
  std::string type = {};  // ggml's name: "q4_K"
  double decode = 0.0;    // bytes of weights per second, one row, out of memory
  double prompt = 0.0;    // multiplications of a weight per second, many rows

  bool operator==(const KernelRate&) const = default;
};

struct MachineRates {
  std::string cpu = {};   // the processor's name
  uint32_t threads = 0;   // compute threads
  uint64_t memory = 0;    // bytes that this process may take
  uint64_t page = 0;      // bytes of a page, by which direct reads go; 0: as on this machine
  double disk = 0.0;      // bytes per second of direct reads, `io_depth` at a time
  uint32_t io_depth = 4;  // reads at a time
  double barrier = 0.0;   // seconds in which all compute threads get work and have done it
  std::vector<KernelRate> kernels = {};

  // nullptr: the type was not measured.
  const KernelRate* Find(std::string_view type) const {
    for (const KernelRate& rate : kernels) {
      if (rate.type == type) return &rate;
    }
    return nullptr;
  }
  bool operator==(const MachineRates&) const = default;
};

// Costs of decoding one token at a time on a machine: measured (Engine::ProbeCosts()) or given by a
// user. The simulator's clock advances by them.

struct MachineCosts {
  double compute = 0.0;       // seconds of a token with all experts resident
  double expert_share = 0.6;  // share of `compute` that its experts take
  // Extra cost of an expert at the first and the second use after it was read, as a multiple of its
  // usual cost: its rows are not in order yet, and are put in order then.
  double first_use = 0.0;
  double second_use = 0.0;
  double bandwidth = 0.0;     // bytes per second, of an expert's reads; 0: no clock
  double read_latency = 0.0;  // seconds more that an idle disk takes for the first of several reads
  // Seconds that a layer that lacks experts takes beyond their reading and computing: threads that
  // fall asleep, experts computed one by one.
  double layer_wait = 0.0;
  double compute_beside = 1.0;   // times as long while the disk reads
  double read_beside = 1.0;      // times as long while the processor computes
  uint32_t io_depth = 4;         // reads at a time
  uint32_t max_read = 1U << 20;  // bytes of one

  bool operator==(const MachineCosts&) const = default;

  // Whether all values could have been measured.
  bool is_sane() const {
    constexpr double kMost = 1e6;  // seconds, or times
    constexpr double kMostBandwidth = 1e15;
    constexpr uint32_t kMostReads = 4096;
    constexpr uint32_t kLeastRead = 4096;
    const auto between = [](double value, double least, double most) {
      return value >= least && value <= most;  // not for NaN
    };
    return between(compute, 0.0, kMost) && between(expert_share, 0.0, 1.0) &&
           between(first_use, 0.0, kMost) && between(second_use, 0.0, kMost) &&
           between(bandwidth, 0.0, kMostBandwidth) && between(read_latency, 0.0, kMost) &&
           between(layer_wait, 0.0, kMost) && between(compute_beside, 1.0, kMost) &&
           between(read_beside, 1.0, kMost) && io_depth >= 1 && io_depth <= kMostReads &&
           max_read >= kLeastRead;
  }
};

}  // namespace moestro
