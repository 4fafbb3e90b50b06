// SPDX-License-Identifier: MIT
// The link between memory and a device of this machine. Bytes cross at borders: between two
// launches, a list of writes and a list of reads, as a value. A border costs one wait if it reads,
// none if it only writes: bytes pass through a ring of pinned memory, so that the device copies
// them in the order of launches. Without such memory, or for more bytes than the ring holds, each
// copy is the driver's own. Reads may also be queued, and land while later launches compute.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend_calls.h"
#include "compute/devices.h"
#include "compute/host_memory.h"
#include "decide/devices/device_tier.h"
#include "devices/wait_watch.h"

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
  static constexpr uint64_t kRing = uint64_t{2} << 20;

  // A warning names the device if a wait lasts this long.
  static constexpr double kPatience = 20.0;  // seconds

  // Without pinned memory that the CPU caches, there is no ring. The device must outlive this.
  explicit DeviceLink(const ComputeDevice& device, double patience = kPatience);
  DeviceLink(const DeviceLink&) = delete;
  DeviceLink& operator=(const DeviceLink&) = delete;

  const ComputeDevice& device() const { return device_; }

  // Writes first; then reads, behind all launches. kDevice, here and below: nothing is under way
  // any more, and queued reads are lost.
  Status Cross(const Border& border);
  // Queues reads behind all launches so far, and returns the number of these reads, counted from 0.
  // Land() of this number, or a wait for all launches, brings the bytes. lands_alone: Land() is to
  // wait for no later launch, if the driver can.
  Result<uint64_t> QueueReads(std::vector<Border::Read> reads, bool lands_alone);
  // Reads of lower numbers have landed, too. kDevice: an error has lost the reads, earlier perhaps.
  Status Land(uint64_t number);
  // Returns while the device computes a placed graph.
  Status Launch(ggml_cgraph* graph);
  // Waits until nothing is under way, and lands all queued reads; without a call of the driver if
  // nothing was begun.
  Status Finish();

  void CountBuilt() { ++traffic_.graphs_built; }
  // Since creation, without copies of experts.
  const DeviceTraffic& traffic() const { return traffic_; }

 private:
  struct Queued {
    std::vector<Border::Read> reads;
    std::vector<const std::byte*> from;  // [read], in the ring; empty: copied when they land
    EventPtr event;                      // null: lands with all launches
  };
  Status CrossByRing(const Border& border);
  Status CrossDirectly(const Border& border);
  Result<std::vector<const std::byte*>> ReadToRing(std::span<const Border::Read> reads);
  Status Queue(Queued& queued, bool lands_alone);
  Status Settled(Status status);
  Status Wait() {
    return watch_.During([this] { return device_.Finish(); });
  }
  Status LandFirst();
  std::byte* TakeRoom(uint64_t bytes);

  const ComputeDevice& device_;
  HostMemory ring_;  // empty: no ring
  uint64_t used_ = 0;
  bool is_idle_ = true;  // nothing was begun since the last wait
  std::deque<Queued> queued_;
  uint64_t n_landed_ = 0;   // of all that were queued, or were lost
  uint64_t lost_from_ = 0;  // numbers [lost_from_, lost_to_) were lost last
  uint64_t lost_to_ = 0;
  std::vector<EventPtr> spare_events_;  // for later reads
  DeviceTraffic traffic_;
  WaitWatch watch_;
};
}  // namespace moestro
