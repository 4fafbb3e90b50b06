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

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/number.h"
#include "base/pages.h"
#include "base/result.h"
#include "store/block_reader.h"

namespace moestro {

// Memory that reads land in again and again, as buffers that a kernel can keep pinned: a read into
// one need not look up, hold and let go of its pages.
//
// Thread rule: none.

// The kernel's limit for one registered buffer.
inline constexpr uint64_t kMostBufferBytes = kGiB;

// The parts of `pieces` that consist of whole huge pages, as buffers of at most `most_bytes`,
// ascending by address; no more than kMostBuffers. The kernel keeps a note of 16 bytes for each
// page of a buffer; with small pages that would be 0.4 % of memory outside every plan, and before
// Linux 6.12 huge pages cost as much. Returns nothing on such kernels, and where the kernel does
// not report which pages are huge.
// REQUIRES: no two pieces overlap; most_bytes is a multiple of 2 MiB.
inline constexpr size_t kMostBuffers = 4096;  // the kernel takes 16384
std::vector<std::span<std::byte>> LandingBuffers(std::span<const std::span<std::byte>> pieces,
                                                 uint64_t most_bytes = kMostBufferBytes);

// The buffer that holds all of `memory`; nullopt: none does. REQUIRES: ascending by address.
std::optional<size_t> BufferOf(std::span<const std::span<std::byte>> buffers,
                               std::span<const std::byte> memory);

// kUnsupported: this kernel has no io_uring or does not let this process use it (containers often
// do not). kIo: a file cannot be opened. Destroying the reader waits for the reads in flight.
Result<std::unique_ptr<BlockReader>> OpenUringReader(const std::vector<std::string>& paths,
                                                     unsigned queue_depth,
                                                     uint64_t least_block = PageBytes());

// 0, or the errno value with which the kernel refuses a small ring to this process.
int TryUring();

}  // namespace moestro
