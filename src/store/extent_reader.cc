// SPDX-License-Identifier: MIT
#include "store/extent_reader.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.h"

namespace moestro {

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
