// SPDX-License-Identifier: MIT
// Room for one ggml graph at a time: node metadata and intermediate results. What must outlive the
// graph is placed by the caller in a HostBuffer before Run().
#pragma once

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "device/host_memory.h"

namespace moestro {

// Our own memory under a name that ggml tensors can live at.
class HostBuffer {
 public:
  static Result<HostBuffer> Allocate(uint64_t bytes);
  std::byte* data() const { return memory_.data(); }
  uint64_t size() const { return memory_.size(); }
  // Gives a tensor without data a place at `offset`. REQUIRES: it fits, offset is a multiple of 4
  // (ggml reads floats unaligned).
  void Place(ggml_tensor* tensor, uint64_t offset) const;

 private:
  HostMemory memory_;
  ggml_backend_buffer_ptr buffer_;
};

class GraphArena {
 public:
  // max_nodes: of the largest graph, inputs and views included. `backend` must outlive this.
  GraphArena(ggml_backend_t backend, size_t max_nodes);

  // Forgets the previous graph and starts an empty one.
  ggml_context* Begin();
  ggml_context* context() const { return context_.get(); }
  ggml_cgraph* graph() const { return graph_; }

  // Sizes the memory for the graph just built, the largest that will come. kNoMemory.
  Status Reserve();
  // Places inputs and intermediates; kNoMemory.
  Status Place();
  // Place() and computes.
  Status Run();
  // Computes what is placed, and returns while a device does; kDevice.
  Status Launch();
  uint64_t buffer_bytes() const;

 private:
  ggml_backend_t backend_;
  size_t max_nodes_;
  std::vector<std::byte> metadata_;
  ggml_context_ptr context_;
  ggml_cgraph* graph_ = nullptr;  // lives in metadata_
  ggml_gallocr_ptr allocator_;
};

}  // namespace moestro
