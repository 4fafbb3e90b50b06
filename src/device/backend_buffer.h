// SPDX-License-Identifier: MIT
// Memory of a backend in which tensors get a place: for the CPU, our own memory behind a pointer;
// for a device, memory that is read and written by copies.
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
  // A buffer of zeros. kNoMemory: the device refuses, since buffers of a device may be limited in
  // size; kDevice.
  static Result<BackendBuffer> On(ggml_backend_t backend, uint64_t bytes);
  // A buffer on the device of `backend`; null: on the host.
  static Result<BackendBuffer> Where(ggml_backend_t backend, uint64_t bytes);
  // The alignment of tensors' offsets.
  static uint64_t AlignmentOf(ggml_backend_t backend);

  // Null on a device.
  std::byte* data() const { return memory_.data(); }
  uint64_t size() const { return size_; }
  // The whole buffer as a tensor of bytes; null on the host.
  ggml_tensor* bytes() const { return bytes_; }
  // Gives a tensor without data a place at `offset`. REQUIRES: the tensor fits; offset is a
  // multiple of 4 on the host (ggml reads floats unaligned), of the alignment on a device.
  void Place(ggml_tensor* tensor, uint64_t offset) const;

  // Copy between the buffer and other memory. No launch that uses the bytes may be under way.
  // kDevice.
  Status Write(uint64_t offset, std::span<const std::byte> bytes) const;
  Status Read(uint64_t offset, std::span<std::byte> bytes) const;

 private:
  HostMemory memory_;  // memory of a host buffer
  uint64_t size_ = 0;
  BufferPtr buffer_;
  ggml_context_ptr context_;      // context of a device buffer
  ggml_tensor* bytes_ = nullptr;  // the whole device buffer, as bytes
};

}  // namespace moestro
