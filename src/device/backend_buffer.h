// SPDX-License-Identifier: MIT
// Memory of a backend in which tensors get a place: of the CPU, our own memory with a pointer; of a
// device, read and written by copies.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "device/backend_calls.h"
#include "device/host_memory.h"

namespace moestro {

class BackendBuffer {
 public:
  static Result<BackendBuffer> OnHost(uint64_t bytes);
  // All zeros. kNoMemory if the device refuses, one buffer of a device may be limited; kDevice.
  static Result<BackendBuffer> On(ggml_backend_t backend, uint64_t bytes);
  // On the device of `backend`; null: on the host.
  static Result<BackendBuffer> Where(ggml_backend_t backend, uint64_t bytes);
  // Offsets of tensors are multiples of this.
  static uint64_t AlignmentOf(ggml_backend_t backend);

  // Null on a device.
  std::byte* data() const { return memory_.data(); }
  uint64_t size() const { return size_; }
  // Gives a tensor without data a place at `offset`. REQUIRES: it fits; offset is a multiple of 4
  // on the host (ggml reads floats unaligned), of the alignment on a device.
  void Place(ggml_tensor* tensor, uint64_t offset) const;

  // Copies between here and other memory; no launch may be under way that uses these bytes.
  // kDevice.
  Status Write(uint64_t offset, std::span<const std::byte> bytes) const;
  Status Read(uint64_t offset, std::span<std::byte> bytes) const;

 private:
  HostMemory memory_;  // of the host's
  uint64_t size_ = 0;
  BufferPtr buffer_;
  ggml_context_ptr context_;      // of the device's
  ggml_tensor* bytes_ = nullptr;  // all of it, as bytes
};

}  // namespace moestro
