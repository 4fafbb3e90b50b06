// SPDX-License-Identifier: MIT
// The link between memory and a device of this machine. Bytes cross at borders: between two
// launches, a list of writes and a list of reads, as a value. A border costs one wait if it reads,
// none if it only writes: bytes pass through a ring of pinned memory, so that the device copies
// them in the order of launches. Without such memory, or for more bytes than the ring holds, each
// copy is the driver's own.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/counters.h"
#include "base/result.h"
#include "device/devices.h"
#include "device/host_memory.h"

namespace moestro {

// Tensors are on the device. The bytes must be within the tensor, and live until Cross() returns.
struct Border {
  struct Write {
    ggml_tensor* to = nullptr;
    uint64_t offset = 0;  // bytes into the tensor
    std::span<const std::byte> from;
  };
  struct Read {
    const ggml_tensor* from = nullptr;
    uint64_t offset = 0;  // bytes into the tensor
    std::span<std::byte> to;
  };
  std::vector<Write> writes = {};
  std::vector<Read> reads = {};

  uint64_t bytes() const;
};

class DeviceLink {
 public:
  static constexpr uint64_t kRing = uint64_t{1} << 20;

  // Without pinned memory that the CPU caches, there is no ring. The device must outlive this.
  explicit DeviceLink(const ComputeDevice& device);
  DeviceLink(const DeviceLink&) = delete;
  DeviceLink& operator=(const DeviceLink&) = delete;

  const ComputeDevice& device() const { return device_; }

  // Writes first; then reads, behind all launches. kDevice, here and below.
  Status Cross(const Border& border);
  // Returns while the device computes a placed graph.
  Status Launch(ggml_cgraph* graph);
  // Waits until nothing is under way.
  Status Finish();

  struct Counts {
    uint64_t launches = 0;
    uint64_t waits = 0;
    uint64_t writes = 0;
    uint64_t reads = 0;
    uint64_t bytes_there = 0;  // written
    uint64_t bytes_back = 0;   // read

    static constexpr void Visit(auto&& visit) {
      visit(&Counts::launches, CounterText{.json = "launches"});
      visit(&Counts::waits, CounterText{.json = "waits"});
      visit(&Counts::writes, CounterText{.json = "writes"});
      visit(&Counts::reads, CounterText{.json = "reads"});
      visit(&Counts::bytes_there, CounterText{.json = "bytes_there"});
      visit(&Counts::bytes_back, CounterText{.json = "bytes_back"});
    }
  };
  const Counts& counts() const { return counts_; }

 private:
  Status CrossByRing(const Border& border);
  Status CrossDirectly(const Border& border);
  std::byte* TakeRoom(uint64_t bytes);

  const ComputeDevice& device_;
  HostMemory ring_;  // empty: no ring
  uint64_t used_ = 0;
  Counts counts_;
};
static_assert(CountsAllOf<DeviceLink::Counts>());

}  // namespace moestro
