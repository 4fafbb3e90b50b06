// SPDX-License-Identifier: MIT
// Memory of a backend in which tensors get a place: for the CPU, our own memory behind a pointer;
// for a device, memory that is read and written by copies.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "compute/backend_calls.h"
#include "compute/host_memory.h"

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

// Memory for ggml graphs: node metadata, and one buffer for the intermediate results of all graphs,
// which run one after the other. The caller places tensors that must outlive a graph's run in a
// BackendBuffer before Place().
//
// Thread rule: the engine thread.

// The metadata of one graph.
class GraphRoom {
 public:
  // max_nodes: nodes of the largest graph, inputs and views included. Pages without nodes are not
  // touched.
  explicit GraphRoom(size_t max_nodes);
  // Drops the graph and starts an empty one.
  void Begin();
  ggml_context* context() const { return context_.get(); }
  ggml_cgraph* graph() const { return graph_; }
  uint64_t used_bytes() const { return ggml_used_mem(context_.get()); }

 private:
  size_t max_nodes_;
  size_t size_;
  std::unique_ptr<std::byte[]> metadata_;
  ggml_context_ptr context_;
  ggml_cgraph* graph_ = nullptr;  // lives in metadata_
};

class GraphArena {
 public:
  // max_nodes: nodes of the largest graph. `backend` must outlive this.
  GraphArena(ggml_backend_t backend, size_t max_nodes);

  // Starts an empty graph in `room`, or in a room of the arena's own for one graph at a time. The
  // functions below are about this graph.
  ggml_context* Begin(GraphRoom* room = nullptr);
  ggml_context* context() const { return room_->context(); }
  ggml_cgraph* graph() const { return room_->graph(); }

  // Sizes the memory for the graph just built, which must be the largest. kNoMemory, kDevice.
  Status Reserve();
  // Places inputs and intermediates; kNoMemory, kDevice. A graph that was placed before may run
  // again until buffer_bytes() changes: a larger graph moves the memory.
  Status Place();
  // Place() and computes.
  Status Run();
  // Computes the placed graph, and returns while a device computes; kDevice.
  Status Launch();
  uint64_t buffer_bytes() const;
  uint64_t used_bytes() const { return room_->used_bytes(); }  // metadata of the graph just built

 private:
  ggml_backend_t backend_;
  std::unique_ptr<GraphRoom> own_room_;
  GraphRoom* room_;
  AllocatorPtr allocator_;
};

}  // namespace moestro
