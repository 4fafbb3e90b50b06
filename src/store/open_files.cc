// SPDX-License-Identifier: MIT
#include "store/open_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <utility>

#include "base/result.h"
#include "base/text.h"

namespace moestro {
namespace {

int OpenReadOnly(const std::string& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// One aligned read at the start: 0 or an errno value. An empty file reads as fine.
int TryRead(int fd, uint64_t block) {
  const std::unique_ptr<void, decltype(&std::free)> memory{std::aligned_alloc(block, block),
                                                           &std::free};
  if (!memory) return ENOMEM;
  ssize_t n = -1;
  do {
    n = ::pread(fd, memory.get(), block, 0);
  } while (n < 0 && errno == EINTR);
  return n < 0 ? errno : 0;
}

// The file's alignment for direct I/O as statx() reports it, at least `block`.
uint64_t DirectBlock(int fd, uint64_t block) {
#ifdef STATX_DIOALIGN
  struct statx info = {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0) {
    block = std::max<uint64_t>({block, info.stx_dio_mem_align, info.stx_dio_offset_align});
  }
#endif
  return std::bit_ceil(block);
}

Status CheckKind(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) {
    return Fail(Errc::kIo, "cannot open {}: {}", path, ErrnoText(errno));
  }
  if (!S_ISREG(info.st_mode) && !S_ISBLK(info.st_mode)) {
    return Fail(Errc::kIo, "cannot read {}: not a regular file", path);
  }
  return {};
}

Result<OpenFile> OpenOne(const std::string& path, uint64_t least_block) {
  TRY_STATUS(CheckKind(path));  // first, because opening a FIFO would block
  if (UniqueFd fd{OpenReadOnly(path, O_DIRECT)}; fd.get() >= 0) {
    // Some file systems take the flag and refuse the read, so a read is tried.
    const uint64_t block = DirectBlock(fd.get(), least_block);
    const int error = block <= kMostPageBytes ? TryRead(fd.get(), block) : EINVAL;
    if (error == 0) return OpenFile{.fd = std::move(fd), .is_direct = true, .block = block};
    if (error != EINVAL && error != EOPNOTSUPP) {
      return Fail(Errc::kIo, "cannot read {}: {}", path, ErrnoText(error));
    }
  }
  UniqueFd fd{OpenReadOnly(path, 0)};
  if (fd.get() < 0) return Fail(Errc::kIo, "cannot open {}: {}", path, ErrnoText(errno));
  if (const int error = TryRead(fd.get(), least_block); error != 0) {
    return Fail(Errc::kIo, "cannot read {}: {}", path, ErrnoText(error));
  }
  // Without read-ahead: pages fetched beyond the request would stay in the page cache.
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
  return OpenFile{.fd = std::move(fd), .is_direct = false, .block = least_block};
}

}  // namespace

Result<OpenFiles> OpenFiles::Open(const std::vector<std::string>& paths, uint64_t least_block) {
  OpenFiles opened(least_block);
  for (const std::string& path : paths) {
    TRY(OpenFile file, OpenOne(path, least_block));
    opened.block_ = std::max(opened.block_, file.block);
    opened.files_.push_back(std::move(file));
  }
  return opened;
}

std::string OpenFiles::description() const {
  const auto direct = static_cast<size_t>(std::ranges::count_if(files_, &OpenFile::is_direct));
  if (direct == files_.size()) return "O_DIRECT";
  if (direct == 0) return "buffered";
  return Format("{} of {} files O_DIRECT", direct, files_.size());
}

void OpenFiles::DropCache(size_t file, uint64_t offset, uint64_t length) const {
  const OpenFile& f = files_[file];
  if (f.is_direct) return;
  ::posix_fadvise(f.fd.get(), static_cast<off_t>(offset), static_cast<off_t>(length),
                  POSIX_FADV_DONTNEED);
}

std::string ErrnoText(int error) { return std::generic_category().message(error); }

Result<ExtentReader> ExtentReader::Open(const std::vector<std::string>& paths) {
  TRY(OpenFiles files, OpenFiles::Open(paths));
  return ExtentReader(paths, std::move(files));
}

Result<ExtentBytes> ExtentReader::Read(const Extent& extent) const {
  CHECK(extent.file < files_.size());
  const Window window = CoveringWindow(extent, files_.block());
  ExtentBytes read;
  read.memory.reset(static_cast<std::byte*>(std::aligned_alloc(files_.block(), window.length)));
  if (read.memory == nullptr) {
    return Fail(Errc::kNoMemory, "no memory for {} bytes of {}", window.length,
                paths_[extent.file]);
  }
  const int fd = files_[extent.file].fd.get();
  const uint64_t wanted = window.residue + extent.length;
  for (uint64_t done = 0; done < wanted;) {
    const ssize_t n = ::pread(fd, read.memory.get() + done, window.length - done,
                              static_cast<off_t>(window.offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return Fail(Errc::kIo, "cannot read {} at byte {}: {}", paths_[extent.file],
                  window.offset + done, n < 0 ? ErrnoText(errno) : "the file ends there");
    }
    done += static_cast<uint64_t>(n);
  }
  files_.DropCache(extent.file, window.offset, window.length);
  read.bytes = {read.memory.get() + window.residue, extent.length};
  return read;
}

}  // namespace moestro
