// SPDX-License-Identifier: MIT
#include "hosted/file_mapping.h"

#include <dlfcn.h>  // NOLINT(misc-include-cleaner): with the thread sanitizer
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "base/number.h"
#include "base/pages.h"
#include "base/result.h"
#include "compute/host_memory.h"

namespace moestro {
namespace {

// The thread sanitizer calls mmap() while it starts. Code that reports to the sanitizer would then
// end the process.
#if defined(__SANITIZE_THREAD__)
#define MOESTRO_BEFORE_SANITIZER __attribute__((no_sanitize("thread")))
#else
#define MOESTRO_BEFORE_SANITIZER
#endif

thread_local LazyMapping* current = nullptr;

MOESTRO_BEFORE_SANITIZER void* MapBySystem(void* address, size_t length, int protection, int flags,
                                           int fd, off_t offset) {
#if defined(__SANITIZE_THREAD__)
  // The sanitizer's mmap() must get every mapping. A guarded static would report to the sanitizer.
  using Map = void* (*)(void*, size_t, int, int, int, off_t);
  static Map next;
  if (next == nullptr) next = reinterpret_cast<Map>(dlsym(RTLD_NEXT, "mmap"));
  if (next != nullptr) return next(address, length, protection, flags, fd, offset);
#endif
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the system answers with a number.
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection, flags, fd, offset));
}

// A line of /proc/self/maps: "begin-end rights offset device inode path".
struct MapsLine {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t offset = 0;
  uint64_t inode = 0;
};

bool Parse(const std::string& line, MapsLine& parsed) {
  unsigned long begin = 0;
  unsigned long end = 0;
  unsigned long offset = 0;
  unsigned long inode = 0;
  if (std::sscanf(line.c_str(), "%lx-%lx %*s %lx %*s %lu", &begin, &end, &offset, &inode) != 4) {
    return false;
  }
  parsed = {.begin = begin, .end = end, .offset = offset, .inode = inode};
  return true;
}

}  // namespace

LazyMapping::LazyMapping(std::span<const FileStamp> files) : files_(files.begin(), files.end()) {
  CHECK(current == nullptr);
  current = this;
}

LazyMapping::~LazyMapping() { current = nullptr; }

LazyMapping* LazyMapping::of_this_thread() { return current; }

bool LazyMapping::is_for(int fd, uint32_t& file) const {
  struct stat found{};
  if (fd < 0 || fstat(fd, &found) != 0) return false;
  const auto at = std::ranges::find_if(files_, [&](const FileStamp& stamp) {
    return stamp.device == found.st_dev && stamp.inode == found.st_ino;
  });
  file = static_cast<uint32_t>(at - files_.begin());
  return at != files_.end();
}

// The lines of /proc/self/maps that lie within mapped_ and have the file's inode. The device is not
// compared: some file systems give another one here than in stat(), and the place is proof enough.
Result<std::vector<MappedRange>> LazyMapping::Remaining() const {
  std::ifstream maps("/proc/self/maps");
  if (!maps) return Fail(Errc::kIo, "cannot read /proc/self/maps: {}", std::strerror(errno));
  std::vector<MappedRange> remaining;
  for (std::string line; std::getline(maps, line);) {
    MapsLine found;
    if (!Parse(line, found)) continue;
    for (const MappedRange& range : mapped_) {
      const auto begin = reinterpret_cast<uint64_t>(range.begin);
      const bool is_within = found.begin >= begin && found.end <= begin + range.length;
      if (!is_within || found.inode != files_[range.file].inode) continue;
      remaining.push_back({.begin = range.begin + (found.begin - begin),
                           .length = found.end - found.begin,
                           .file = range.file,
                           .offset = found.offset});
    }
  }
  return remaining;
}

Status LayOver(std::span<std::byte> pages) {
  void* const laid = MapBySystem(pages.data(), pages.size(), PROT_READ | PROT_WRITE,
                                 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (laid != pages.data()) {
    return Fail(Errc::kNoMemory, "the system refuses {} of memory for the model ({})",
                FormatBytes(pages.size()), std::strerror(errno));
  }
  AdviseHugePages(pages.data(), pages.size());
  return {};
}

}  // namespace moestro

// Replaces the C library's functions: see the header.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the system has other names.
extern "C" MOESTRO_BEFORE_SANITIZER void* mmap(void* address, size_t length, int protection,
                                               int flags, int fd, off_t offset) noexcept {
  moestro::LazyMapping* const lazy = moestro::current;
  uint32_t file = 0;
  if (lazy == nullptr || !lazy->is_for(fd, file)) {
    return moestro::MapBySystem(address, length, protection, flags, fd, offset);
  }
  void* const mapped =
      moestro::MapBySystem(address, length, protection, flags & ~MAP_POPULATE, fd, offset);
  if (mapped != MAP_FAILED) {
    lazy->Mapped({.begin = static_cast<std::byte*>(mapped),
                  .length = moestro::AlignUp(length, moestro::PageBytes()),
                  .file = file,
                  .offset = static_cast<uint64_t>(offset)});
  }
  return mapped;
}

extern "C" int posix_madvise(void* address, size_t length, int advice) noexcept {
  if (moestro::LazyMapping::of_this_thread() != nullptr) return 0;  // nothing is to be read ahead
  if (advice == POSIX_MADV_DONTNEED) return 0;  // madvise() would lose written bytes
  return madvise(address, length, advice) == 0 ? 0 : errno;
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

#undef MOESTRO_BEFORE_SANITIZER
