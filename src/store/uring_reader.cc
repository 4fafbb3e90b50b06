// SPDX-License-Identifier: MIT
#include "store/uring_reader.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "base/input_file.h"
#include "base/number.h"
#include "base/result.h"
#include "base/terminal.h"
#include "store/open_files.h"

namespace moestro {
namespace {

constexpr uint64_t kWholePage = 2 * kMiB;

uint64_t AddressOf(const std::byte* at) { return reinterpret_cast<uintptr_t>(at); }

// A huge page of a buffer is one entry of the kernel's list since 6.12.
bool CountsHugePagesOnce() {
  utsname name = {};
  unsigned major = 0;
  unsigned minor = 0;
  if (::uname(&name) != 0 || std::sscanf(name.release, "%u.%u", &major, &minor) != 2) return false;
  return major > 6 || (major == 6 && minor >= 12);
}

// The kernel's structures for PAGEMAP_SCAN (since 6.7), declared here since the C library's headers
// may be older.
struct PageRegion {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t categories = 0;
};
struct PageScan {
  uint64_t size = sizeof(PageScan);
  uint64_t flags = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t walk_end = 0;
  uint64_t regions = 0;  // address of the PageRegion array that the kernel fills
  uint64_t n_regions = 0;
  uint64_t most_pages = 0;
  uint64_t inverted = 0;
  uint64_t all_of = 0;
  uint64_t any_of = 0;
  uint64_t told = 0;
};
constexpr uint64_t kIsHuge = 1U << 6;

// The next range from `begin` on whose pages are all huge; empty if none begins before `end`, or if
// the kernel cannot report huge pages.
PageRegion NextHuge(int pagemap, uint64_t begin, uint64_t end) {
  PageRegion found;
  PageScan scan{.start = begin,
                .end = end,
                .regions = reinterpret_cast<uintptr_t>(&found),
                .n_regions = 1,
                .all_of = kIsHuge,
                .told = kIsHuge};
  return ::ioctl(pagemap, _IOWR('f', 16, PageScan), &scan) == 1 ? found : PageRegion();
}

}  // namespace

std::vector<std::span<std::byte>> LandingBuffers(std::span<const std::span<std::byte>> pieces,
                                                 uint64_t most_bytes) {
  std::vector<std::span<std::byte>> buffers;
  if (!CountsHugePagesOnce()) return buffers;
  const UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (pagemap.get() < 0) return buffers;
  for (const std::span<std::byte> piece : pieces) {
    const uint64_t address = AddressOf(piece.data());
    const uint64_t end = AlignDown(address + piece.size(), kWholePage);
    for (uint64_t at = AlignUp(address, kWholePage); at < end;) {
      const PageRegion huge = NextHuge(pagemap.get(), at, end);
      if (huge.end <= at) break;
      for (at = huge.start; at < huge.end && buffers.size() < kMostBuffers;) {
        const uint64_t size = std::min(most_bytes, huge.end - at);
        buffers.push_back(piece.subspan(at - address, size));
        at += size;
      }
      at = huge.end;
    }
  }
  std::ranges::sort(buffers, std::less(), &std::span<std::byte>::data);
  return buffers;
}

std::optional<size_t> BufferOf(std::span<const std::span<std::byte>> buffers,
                               std::span<const std::byte> memory) {
  const uint64_t begin = AddressOf(memory.data());
  const auto after = std::ranges::upper_bound(
      buffers, begin, {}, [](std::span<std::byte> one) { return AddressOf(one.data()); });
  if (after == buffers.begin()) return std::nullopt;
  const std::span<std::byte> found = *(after - 1);
  const uint64_t end = AddressOf(found.data()) + found.size();
  if (begin >= end || memory.size() > end - begin) return std::nullopt;
  return static_cast<size_t>(after - 1 - buffers.begin());
}

namespace {

// Submissions of a read that the kernel interrupts, after which the error is returned.
constexpr unsigned kMaxInterrupts = 16;

// Owns a ring. Not movable: the kernel's view and ours are tied by the mapping inside.
class Ring {
 public:
  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    if (is_open_) io_uring_queue_exit(&ring_);
  }
  io_uring* get() { return &ring_; }
  // Whether the kernel itself ends a wait after a time (since 5.11).
  bool has_timed_waits() const { return (ring_.features & IORING_FEAT_EXT_ARG) != 0; }

  // Tries deferred task work first: completions then wait in a list until this thread collects
  // them, so that they neither interrupt computation nor cost a system call each; the kernel raises
  // a flag in shared memory, which Poll() reads. A Pump() of the queue that finds nothing takes 64
  // ns. Kernels before 6.1 lack DEFER_TASKRUN, before 5.19 all of these flags.
  int Open(unsigned entries) {
    constexpr unsigned kWays[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, 0};
    int error = 0;
    for (const unsigned flags : kWays) {
      error = -io_uring_queue_init(entries, &ring_, flags);
      if (error != EINVAL) break;
    }
    is_open_ = error == 0;
    return error;
  }

 private:
  io_uring ring_ = {};
  bool is_open_ = false;
};

class UringReader final : public BlockReader {
 public:
  UringReader(std::unique_ptr<Ring> ring, OpenFiles files, unsigned depth)
      : ring_(std::move(ring)), files_(std::move(files)), slots_(depth) {
    for (unsigned i = depth; i > 0; --i) free_.push_back(i - 1);
    RegisterFiles();
  }
  UringReader(const UringReader&) = delete;
  UringReader& operator=(const UringReader&) = delete;
  ~UringReader() override {
    std::array<BlockDone, 16> ignored;
    while (Wait(ignored) > 0) {
    }
  }

  uint64_t block() const override { return files_.block(); }
  bool Submit(const BlockRead& read) override;
  size_t Poll(std::span<BlockDone> out) override;
  size_t Wait(std::span<BlockDone> out) override;
  size_t WaitBriefly(std::span<BlockDone> out) override;
  uint64_t RegisterMemory(std::span<const std::span<std::byte>> pieces) override;
  void ForgetMemory() override;
  std::string description() const override { return "io_uring, " + files_.description(); }

 private:
  struct Slot {
    BlockRead read;
    unsigned interrupts = 0;
  };

  void RegisterFiles();
  void Prepare(unsigned slot);
  size_t Reap(std::span<BlockDone> out);
  // True if the slot is free again and `done` filled; false if the read was handed in once more.
  bool Finish(const io_uring_cqe& cqe, BlockDone& done);

  std::unique_ptr<Ring> ring_;
  OpenFiles files_;
  std::vector<Slot> slots_;                    // reads between Submit() and their result
  std::vector<unsigned> free_;                 // indices of unused slots
  std::vector<std::span<std::byte>> buffers_;  // pinned, ascending by address
  bool has_fixed_files_ = false;
};

// Saves the kernel a reference count on each read; refused under tight limits, then we do without.
void UringReader::RegisterFiles() {
  std::vector<int> fds;
  for (size_t i = 0; i < files_.size(); ++i) fds.push_back(files_[i].fd.get());
  if (fds.empty()) return;
  has_fixed_files_ =
      io_uring_register_files(ring_->get(), fds.data(), static_cast<unsigned>(fds.size())) == 0;
}

uint64_t UringReader::RegisterMemory(std::span<const std::span<std::byte>> pieces) {
  ForgetMemory();
  std::vector<std::span<std::byte>> buffers = LandingBuffers(pieces);
  if (buffers.empty()) return 0;
  std::vector<iovec> vectors;
  uint64_t bytes = 0;
  for (const std::span<std::byte> buffer : buffers) {
    vectors.push_back({.iov_base = buffer.data(), .iov_len = buffer.size()});
    bytes += buffer.size();
  }
  const auto n = static_cast<unsigned>(vectors.size());
  // ENOMEM: the limit of locked memory (ulimit -l).
  if (const int error = -io_uring_register_buffers(ring_->get(), vectors.data(), n); error != 0) {
    LogLine(LogLevel::kDebug, Format("reads do not get {} of pinned memory: {}", FormatBytes(bytes),
                                     ErrnoText(error)));
    return 0;
  }
  // A fork would copy all pinned pages at once, and no child reads experts.
  for (const std::span<std::byte> buffer : buffers) {
    ::madvise(buffer.data(), buffer.size(), MADV_DONTFORK);
  }
  buffers_ = std::move(buffers);
  return bytes;
}

// Ignores errors of the kernel. No read after this may use a buffer: other pages may lie at its
// address by then.
void UringReader::ForgetMemory() {
  if (buffers_.empty()) return;
  io_uring_unregister_buffers(ring_->get());
  for (const std::span<std::byte> buffer : buffers_) {
    ::madvise(buffer.data(), buffer.size(), MADV_DOFORK);
  }
  buffers_.clear();
}

void UringReader::Prepare(unsigned slot) {
  const BlockRead& read = slots_[slot].read;
  io_uring_sqe* sqe = io_uring_get_sqe(ring_->get());
  CHECK(sqe != nullptr);  // the ring has as many entries as there are slots
  const int fd = has_fixed_files_ ? static_cast<int>(read.file) : files_[read.file].fd.get();
  const auto size = static_cast<unsigned>(read.to.size());
  if (const std::optional<size_t> buffer = BufferOf(buffers_, read.to)) {
    io_uring_prep_read_fixed(sqe, fd, read.to.data(), size, read.offset, static_cast<int>(*buffer));
  } else {
    io_uring_prep_read(sqe, fd, read.to.data(), size, read.offset);
  }
  if (has_fixed_files_) sqe->flags |= IOSQE_FIXED_FILE;
  io_uring_sqe_set_data64(sqe, slot);
}

bool UringReader::Submit(const BlockRead& read) {
  CHECK(read.file < files_.size());
  CHECK(read.to.size() <= (1U << 30));  // a result is a signed 32-bit number
  if (free_.empty()) return false;
  const unsigned slot = free_.back();
  free_.pop_back();
  slots_[slot] = {.read = read, .interrupts = 0};
  Prepare(slot);
  return true;
}

size_t UringReader::Poll(std::span<BlockDone> out) {
  if (io_uring_sq_ready(ring_->get()) > 0) {
    // EAGAIN, EBUSY and EINTR leave the reads prepared: the next call hands them in.
    const int result = io_uring_submit_and_get_events(ring_->get());
    CHECK(result >= 0 || result == -EAGAIN || result == -EBUSY || result == -EINTR);
  }
  return Reap(out);
}

size_t UringReader::Wait(std::span<BlockDone> out) {
  CHECK(!out.empty());
  while (free_.size() < slots_.size()) {
    if (const size_t n = Poll(out); n > 0) return n;
    const int result = io_uring_submit_and_wait(ring_->get(), 1);
    CHECK(result >= 0 || result == -EAGAIN || result == -EBUSY || result == -EINTR);
    // The kernel is short of memory for requests; other work must release some first.
    if (result == -EAGAIN) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return 0;
}

size_t UringReader::WaitBriefly(std::span<BlockDone> out) {
  CHECK(!out.empty());
  if (!ring_->has_timed_waits()) return Wait(out);
  if (free_.size() == slots_.size()) return 0;
  if (const size_t n = Poll(out); n > 0) return n;
  io_uring_cqe* first = nullptr;
  __kernel_timespec at_most{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kBriefly).count()};
  const int result = io_uring_submit_and_wait_timeout(ring_->get(), &first, 1, &at_most, nullptr);
  CHECK(result >= 0 || result == -ETIME || result == -EAGAIN || result == -EBUSY ||
        result == -EINTR);
  return Reap(out);
}

size_t UringReader::Reap(std::span<BlockDone> out) {
  std::array<io_uring_cqe*, 32> ready;
  const auto room = static_cast<unsigned>(std::min(out.size(), ready.size()));
  // Reads shared memory; enters the kernel only when a flag shows that completions wait.
  const unsigned n = io_uring_peek_batch_cqe(ring_->get(), ready.data(), room);
  size_t n_out = 0;
  for (unsigned i = 0; i < n; ++i) {
    if (Finish(*ready[i], out[n_out])) ++n_out;
  }
  if (n > 0) io_uring_cq_advance(ring_->get(), n);
  return n_out;
}

bool UringReader::Finish(const io_uring_cqe& cqe, BlockDone& done) {
  const auto index = static_cast<unsigned>(cqe.user_data);
  Slot& slot = slots_[index];
  const bool was_interrupted = cqe.res == -EINTR || cqe.res == -EAGAIN;
  if (was_interrupted && ++slot.interrupts < kMaxInterrupts) {
    Prepare(index);
    return false;
  }
  const BlockRead& read = slot.read;
  files_.DropCache(read.file, read.offset, read.to.size());
  done = {.tag = read.tag,
          .error = cqe.res < 0 ? -cqe.res : 0,
          .bytes = cqe.res > 0 ? static_cast<uint64_t>(cqe.res) : 0};
  free_.push_back(index);
  return true;
}

}  // namespace

int TryUring() {
  constexpr unsigned kEntries = 8;
  return Ring().Open(kEntries);
}

Result<std::unique_ptr<BlockReader>> OpenUringReader(const std::vector<std::string>& paths,
                                                     unsigned queue_depth, uint64_t least_block) {
  const unsigned depth = std::clamp(queue_depth, 1U, 4096U);
  auto ring = std::make_unique<Ring>();
  // ENOSYS: not in this kernel; EPERM, EACCES: forbidden; ENOMEM: locked memory limit, old kernels.
  if (const int error = ring->Open(depth); error != 0) {
    return Fail(Errc::kUnsupported, "io_uring is not available here: {} (--reader pread works)",
                ErrnoText(error));
  }
  TRY(OpenFiles files, OpenFiles::Open(paths, least_block));
  return std::make_unique<UringReader>(std::move(ring), std::move(files), depth);
}

}  // namespace moestro
