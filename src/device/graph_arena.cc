// SPDX-License-Identifier: MIT
#include "device/graph_arena.h"

#include <ggml-backend.h>

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

Status GraphArena::Reserve() { return ReserveGraph(allocator_.get(), graph_); }

Status GraphArena::Place() { return PlaceGraph(allocator_.get(), graph_); }

Status GraphArena::Run() {
  TRY_STATUS(Place());
  return ComputeOn(backend_, graph_);
}

Status GraphArena::Launch() { return LaunchOn(backend_, graph_); }

uint64_t GraphArena::buffer_bytes() const {
  return ggml_gallocr_get_buffer_size(allocator_.get(), 0);
}

}  // namespace moestro
