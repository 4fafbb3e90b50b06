// SPDX-License-Identifier: MIT
// Memory that two processes share, by a descriptor without a name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace moestro {

class SharedRegion {
 public:
  // kNoMemory, kIo.
  static Result<SharedRegion> Create(uint64_t bytes);
  // Maps another process's region. kIo, also if the region is smaller than `bytes`.
  static Result<SharedRegion> Map(UniqueFd fd, uint64_t bytes);
  SharedRegion() = default;
  SharedRegion(SharedRegion&& other) noexcept
      : fd_(std::move(other.fd_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  SharedRegion& operator=(SharedRegion&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedRegion();

  int fd() const { return fd_.get(); }
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  UniqueFd fd_;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace moestro
