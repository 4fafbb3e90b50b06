// SPDX-License-Identifier: MIT
#include "device/graph_arena.h"

#include <ggml-backend.h>

namespace moestro {

GraphRoom::GraphRoom(size_t max_nodes)
    : max_nodes_(max_nodes),
      size_(max_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(max_nodes, false)),
      metadata_(std::make_unique_for_overwrite<std::byte[]>(size_)) {}

void GraphRoom::Begin() {
  context_.reset();
  context_.reset(ggml_init({.mem_size = size_, .mem_buffer = metadata_.get(), .no_alloc = true}));
  graph_ = ggml_new_graph_custom(context_.get(), max_nodes_, false);
}

GraphArena::GraphArena(ggml_backend_t backend, size_t max_nodes)
    : backend_(backend),
      own_room_(std::make_unique<GraphRoom>(max_nodes)),
      room_(own_room_.get()),
      allocator_(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend))) {}

ggml_context* GraphArena::Begin(GraphRoom* room) {
  room_ = room != nullptr ? room : own_room_.get();
  room_->Begin();
  return room_->context();
}

Status GraphArena::Reserve() { return ReserveGraph(allocator_.get(), room_->graph()); }

Status GraphArena::Place() { return PlaceGraph(allocator_.get(), room_->graph()); }

Status GraphArena::Run() {
  TRY_STATUS(Place());
  return ComputeOn(backend_, room_->graph());
}

Status GraphArena::Launch() { return LaunchOn(backend_, room_->graph()); }

uint64_t GraphArena::buffer_bytes() const {
  return ggml_gallocr_get_buffer_size(allocator_.get(), 0);
}

}  // namespace moestro
