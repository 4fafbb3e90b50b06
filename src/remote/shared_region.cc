// SPDX-License-Identifier: MIT
#include "remote/shared_region.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/bytes.h"

namespace moestro {

Result<SharedRegion> SharedRegion::Create(uint64_t bytes) {
  UniqueFd fd(memfd_create("moestro", MFD_CLOEXEC));
  if (fd.get() < 0 || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Fail(Errc::kIo, "no memory can be shared with another process: {}",
                std::strerror(errno));
  }
  return Map(std::move(fd), bytes);
}

Result<SharedRegion> SharedRegion::Map(UniqueFd fd, uint64_t bytes) {
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0 || static_cast<uint64_t>(info.st_size) < bytes) {
    return Fail(Errc::kIo, "the memory shared with another process is too small");
  }
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) {
    return Fail(Errc::kNoMemory, "there is no memory of {} to share with another process",
                FormatBytes(bytes));
  }
  SharedRegion region;
  region.fd_ = std::move(fd);
  region.data_ = static_cast<std::byte*>(at);
  region.bytes_ = bytes;
  return region;
}

SharedRegion::~SharedRegion() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace moestro
