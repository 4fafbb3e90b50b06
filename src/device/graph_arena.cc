// SPDX-License-Identifier: MIT
#include "device/graph_arena.h"

#include <ggml-backend.h>

#include <exception>

#include "device/cpu_device.h"

namespace moestro {

GraphArena::GraphArena(ggml_backend_t backend, size_t max_nodes)
    : backend_(backend),
      max_nodes_(max_nodes),
      metadata_(max_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(max_nodes, false)),
      allocator_(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend))) {}

ggml_context* GraphArena::Begin() {
  context_.reset();
  context_.reset(
      ggml_init({.mem_size = metadata_.size(), .mem_buffer = metadata_.data(), .no_alloc = true}));
  graph_ = ggml_new_graph_custom(context_.get(), max_nodes_, false);
  return context_.get();
}

Status GraphArena::Reserve() {
  if (ggml_gallocr_reserve(allocator_.get(), graph_)) return {};
  return Fail(Errc::kNoMemory, "cannot allocate the graph buffer; lower --chunk or --ctx");
}

Status GraphArena::Place() {
  if (ggml_gallocr_alloc_graph(allocator_.get(), graph_)) return {};
  return Fail(Errc::kNoMemory, "cannot place a graph; lower --chunk or --ctx");
}

Status GraphArena::Run() {
  TRY_STATUS(Place());
  return ComputeOn(backend_, graph_);
}

Status GraphArena::Launch() {
  // A lost Vulkan device throws.
  try {
    const ggml_status status = ggml_backend_graph_compute_async(backend_, graph_);
    if (status == GGML_STATUS_SUCCESS) return {};
    return Fail(Errc::kDevice, "a launch failed: {}", ggml_status_to_string(status));
  } catch (const std::exception& e) {
    return Fail(Errc::kDevice, "a launch failed: {}", e.what());
  }
}

uint64_t GraphArena::buffer_bytes() const {
  return ggml_gallocr_get_buffer_size(allocator_.get(), 0);
}

}  // namespace moestro
