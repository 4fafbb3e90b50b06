// SPDX-License-Identifier: MIT
#include "compute/backend_buffer.h"

#include <ggml-backend.h>

#include <algorithm>

#include "base/number.h"
#include "base/result.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr uint64_t kLeastAlignment = 64;

}  // namespace

Result<BackendBuffer> BackendBuffer::OnHost(uint64_t bytes) {
  BackendBuffer buffer;
  TRY(buffer.memory_, HostMemory::Allocate(bytes));
  buffer.size_ = buffer.memory_.size();
  if (bytes == 0) return buffer;
  buffer.buffer_.reset(
      ggml_backend_cpu_buffer_from_ptr(buffer.memory_.data(), buffer.memory_.size()));
  if (!buffer.buffer_) return Fail(Errc::kNoMemory, "ggml refused a buffer of {} bytes", bytes);
  return buffer;
}

Result<BackendBuffer> BackendBuffer::On(ggml_backend_t backend, uint64_t bytes) {
  BackendBuffer buffer;
  buffer.size_ = AlignUp(std::max<uint64_t>(bytes, 1), AlignmentOf(backend));
  ggml_backend_buffer_type_t type = ggml_backend_get_default_buffer_type(backend);
  const auto has_none = [&](const Error& why) {
    if (why.code != Errc::kNoMemory) return why;
    return Error{.code = Errc::kNoMemory,
                 .message = Format("{} has no {} in one piece", ggml_backend_name(backend),
                                   FormatBytes(buffer.size_))};
  };
  if (buffer.size_ > ggml_backend_buft_get_max_size(type)) {
    return std::unexpected(has_none({.code = Errc::kNoMemory, .message = {}}));
  }
  TRY(buffer.buffer_, AllocateBuffer(type, buffer.size_).transform_error(has_none));
  TRY_STATUS(ClearBuffer(buffer.buffer_.get()));
  buffer.context_.reset(
      ggml_init({.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  buffer.bytes_ =
      ggml_new_tensor_1d(buffer.context_.get(), GGML_TYPE_I8, static_cast<int64_t>(buffer.size_));
  buffer.Place(buffer.bytes_, 0);
  return buffer;
}

Result<BackendBuffer> BackendBuffer::Where(ggml_backend_t backend, uint64_t bytes) {
  return backend == nullptr ? OnHost(bytes) : On(backend, bytes);
}

uint64_t BackendBuffer::AlignmentOf(ggml_backend_t backend) {
  const uint64_t its =
      ggml_backend_buft_get_alignment(ggml_backend_get_default_buffer_type(backend));
  return std::max(kLeastAlignment, its);
}

void BackendBuffer::Place(ggml_tensor* tensor, uint64_t offset) const {
  CHECK(offset % 4 == 0 && offset + ggml_nbytes(tensor) <= size_);
  auto* base = static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer_.get()));
  PlaceTensor(buffer_.get(), tensor, base + offset);
}

Status BackendBuffer::Write(uint64_t offset, std::span<const std::byte> bytes) const {
  CHECK(offset + bytes.size() <= size_);
  if (bytes_ == nullptr) {
    std::ranges::copy(bytes, memory_.data() + offset);
    return {};
  }
  return CopyTo(bytes_, offset, bytes);
}

Status BackendBuffer::Read(uint64_t offset, std::span<std::byte> bytes) const {
  CHECK(offset + bytes.size() <= size_);
  if (bytes_ == nullptr) {
    std::ranges::copy_n(memory_.data() + offset, static_cast<std::ptrdiff_t>(bytes.size()),
                        bytes.begin());
    return {};
  }
  return CopyFrom(bytes_, offset, bytes);
}

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
