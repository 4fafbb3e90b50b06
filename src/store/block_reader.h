// SPDX-License-Identifier: MIT
// The seam to the disk: windows of files into memory. Sides: UringReader, PreadReader (production),
// MemoryReader (tests: scripted latency and faults).
//
// Thread rule: one thread (the engine thread) calls every method. A side may own helper threads.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/pages.h"
#include "base/result.h"
#include "core/extent.h"

namespace moestro {

struct BlockRead {
  uint32_t file = 0;    // index into the files the reader was opened with
  uint64_t offset = 0;  // REQUIRES: a multiple of block()
  // REQUIRES: address and size multiples of block(). Fastest in huge pages, see ReadQueueOptions.
  std::span<std::byte> to;
  uint64_t tag = 0;  // comes back with the result
};

struct BlockDone {
  uint64_t tag = 0;
  int error = 0;       // 0 or an errno value
  uint64_t bytes = 0;  // bytes read; fewer than requested at the end of the file or by a fault
};

class BlockReader {
 public:
  virtual ~BlockReader() = default;
  // The granularity that offsets, lengths and addresses must keep: a page, or more where a disk
  // needs it.
  virtual uint64_t block() const = 0;
  // Hands a read to the device. False: the queue is full, poll first. `to` stays valid until done.
  virtual bool Submit(const BlockRead& read) = 0;
  // Finished reads, in any order; never blocks. Returns how many were written to `out`.
  virtual size_t Poll(std::span<BlockDone> out) = 0;
  // Like Poll, but sleeps until at least one read is done. Returns 0 only if none is in flight.
  virtual size_t Wait(std::span<BlockDone> out) = 0;
  // Like Wait, for a caller that has to look around now and then: sleeps no longer than kBriefly,
  // and returns 0 if nothing was done by then. A reader that cannot do that waits.
  static constexpr std::chrono::milliseconds kBriefly{10};
  virtual size_t WaitBriefly(std::span<BlockDone> out) { return Wait(out); }
  // Registers memory for many later reads, replacing what was registered before: a reader may pin
  // the memory, which makes reads into it cheaper.
  // Returns the number of bytes pinned now; 0 is no error: reads into the memory then go as into
  // any other. REQUIRES: pieces do not overlap and are populated.
  virtual uint64_t RegisterMemory(std::span<const std::span<std::byte>>) { return 0; }
  // REQUIRES: called before registered memory is unmapped, after the last read into it is done.
  virtual void ForgetMemory() {}
  // "io_uring, O_DIRECT", "pread x4, buffered": for logs and bench output.
  virtual std::string description() const = 0;
};

struct ReaderOptions {
  ReaderKind kind = ReaderKind::kAuto;  // kAuto: io_uring where the kernel allows it, else pread
  unsigned queue_depth = 256;           // reads in flight at the device
  unsigned threads = 4;                 // threads of the pread pool
  uint64_t least_block = PageBytes();   // as OpenFiles::Open() takes it
};

// Opens every file with O_DIRECT where its file system takes it (probed by a real read), buffered
// otherwise (tmpfs, some overlays), in which case pages are dropped from the cache after use.
// Fails with kIo naming the path and errno's text. kUring fails with kUnsupported where io_uring is
// not available; kAuto falls back to the pread pool.
Result<std::unique_ptr<BlockReader>> OpenReader(const ReaderOptions& options,
                                                const std::vector<std::string>& paths);

// Reads by a small pool of threads that call pread: where io_uring is not available.
//
// Reads start in the order of Submit(), one per thread; up to one more per thread may wait inside
// the pool, so that a thread has work when the caller is busy between two polls.

struct PreadOptions {
  unsigned threads = 4;
  unsigned queue_depth = 32;  // reads in flight, if fewer than two for each thread
  uint64_t least_block = PageBytes();
};

// kIo: a file cannot be opened. kNoMemory: threads cannot be started. Destroying the reader
// finishes submitted reads and joins the threads.
Result<std::unique_ptr<BlockReader>> OpenPreadReader(const std::vector<std::string>& paths,
                                                     const PreadOptions& options);

}  // namespace moestro
