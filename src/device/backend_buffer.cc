// SPDX-License-Identifier: MIT
#include "device/backend_buffer.h"

#include <algorithm>
#include <exception>

#include "base/bytes.h"
#include "base/check.h"

namespace moestro {
namespace {

constexpr uint64_t kLeastAlignment = 64;

template <class Copy>
Status Copied(Copy&& copy) {
  try {  // a lost Vulkan device throws
    copy();
    return {};
  } catch (const std::exception& e) {
    return Fail(Errc::kDevice, "a copy between memory and the device failed: {}", e.what());
  }
}

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
  if (buffer.size_ <= ggml_backend_buft_get_max_size(type)) {
    buffer.buffer_.reset(ggml_backend_buft_alloc_buffer(type, buffer.size_));
  }
  if (!buffer.buffer_) {
    return Fail(Errc::kNoMemory, "{} has no {} in one piece", ggml_backend_name(backend),
                FormatBytes(buffer.size_));
  }
  ggml_backend_buffer_clear(buffer.buffer_.get(), 0);
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
  CHECK(ggml_backend_tensor_alloc(buffer_.get(), tensor, base + offset) == GGML_STATUS_SUCCESS);
}

Status BackendBuffer::Write(uint64_t offset, std::span<const std::byte> bytes) const {
  CHECK(offset + bytes.size() <= size_);
  if (bytes_ == nullptr) {
    std::ranges::copy(bytes, memory_.data() + offset);
    return {};
  }
  return Copied([&] { ggml_backend_tensor_set(bytes_, bytes.data(), offset, bytes.size()); });
}

Status BackendBuffer::Read(uint64_t offset, std::span<std::byte> bytes) const {
  CHECK(offset + bytes.size() <= size_);
  if (bytes_ == nullptr) {
    std::ranges::copy_n(memory_.data() + offset, static_cast<std::ptrdiff_t>(bytes.size()),
                        bytes.begin());
    return {};
  }
  return Copied([&] { ggml_backend_tensor_get(bytes_, bytes.data(), offset, bytes.size()); });
}

}  // namespace moestro
