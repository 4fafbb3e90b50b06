// SPDX-License-Identifier: MIT
// Reads through io_uring on the calling thread: no helper thread, no polling kernel thread, because
// the same few cores compute.
//
// Submit() only prepares a read; the next Poll() or Wait() hands all prepared ones to the kernel in
// one system call, so a read starts no earlier than that. Poll() makes no system call when
// nothing is prepared and nothing has finished.
//
// Thread rule: the thread that opens the reader calls every method (the kernel enforces it).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/block_reader.h"

namespace moestro {

// kUnsupported: this kernel has no io_uring or does not let this process use it (containers often
// do not). kIo: a file cannot be opened. Destroying the reader waits for the reads in flight.
Result<std::unique_ptr<BlockReader>> OpenUringReader(const std::vector<std::string>& paths,
                                                     unsigned queue_depth);

// 0, or the errno value with which the kernel refuses a small ring to this process.
int TryUring();

}  // namespace moestro
