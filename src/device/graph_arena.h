// SPDX-License-Identifier: MIT
// Room for one ggml graph at a time: node metadata and intermediate results. What must outlive the
// graph is placed by the caller in a BackendBuffer before Run().
#pragma once

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "device/backend_calls.h"

namespace moestro {

class GraphArena {
 public:
  // max_nodes: of the largest graph, inputs and views included. `backend` must outlive this.
  GraphArena(ggml_backend_t backend, size_t max_nodes);

  // Forgets the previous graph and starts an empty one.
  ggml_context* Begin();
  ggml_context* context() const { return context_.get(); }
  ggml_cgraph* graph() const { return graph_; }

  // Sizes the memory for the graph just built, the largest that will come. kNoMemory, kDevice.
  Status Reserve();
  // Places inputs and intermediates; kNoMemory, kDevice.
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
  AllocatorPtr allocator_;
};

}  // namespace moestro
