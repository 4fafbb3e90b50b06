// SPDX-License-Identifier: MIT
// A border of a step: the bytes that cross between memory and a device of this machine between two
// launches, as a value. Writes are queued before the launches behind the border, reads behind the
// launches before it; all reads of a border cost one wait. From pinned memory writes cost no wait.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/devices.h"

namespace moestro {

class Border {
 public:
  struct Write {
    ggml_tensor* to = nullptr;
    std::span<const std::byte> from;
  };
  struct Read {
    const ggml_tensor* from = nullptr;
    std::span<std::byte> to;
  };

  // Adds a crossing of a placed tensor's first bytes; none if there are no bytes. Tensor and bytes
  // must live until Cross() has returned, written bytes until the next wait for the device.
  void Add(const Write& write) {
    if (!write.from.empty()) writes_.push_back(write);
  }
  void Add(const Read& read) {
    if (!read.to.empty()) reads_.push_back(read);
  }
  std::span<const Write> writes() const { return writes_; }
  std::span<const Read> reads() const { return reads_; }

  // Queues the writes, then the reads; waits if there are reads. Leaves the border empty. kDevice.
  Status Cross(const ComputeDevice& device);

 private:
  std::vector<Write> writes_;
  std::vector<Read> reads_;
};

}  // namespace moestro
