// SPDX-License-Identifier: MIT
// Reads by a small pool of threads that call pread: where io_uring is not available.
//
// Reads start in the order of Submit(), one per thread; up to one more per thread may wait inside
// the pool, so that a thread has work when the caller is busy between two polls.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/block_reader.h"

namespace moestro {

struct PreadOptions {
  unsigned threads = 4;
  unsigned queue_depth = 32;  // reads in flight, if fewer than two for each thread
};

// kIo: a file cannot be opened. kNoMemory: threads cannot be started. Destroying the reader
// finishes submitted reads and joins the threads.
Result<std::unique_ptr<BlockReader>> OpenPreadReader(const std::vector<std::string>& paths,
                                                     const PreadOptions& options);

}  // namespace moestro
