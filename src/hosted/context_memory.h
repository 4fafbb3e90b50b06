// SPDX-License-Identifier: MIT
// The memory that ggml takes for a context of libllama. libllama clears cells and states when it
// makes them. The first touch of a few GiB takes seconds, and fresh pages hold zeros anyway. While
// a ContextMemory lives, in its thread:
//
//   large blocks          lie in huge pages and hold zeros
//   a buffer is made      its bytes are counted
//   a buffer is cleared   its bytes are counted; fresh ones are left alone, and so become resident
//                         only when a position is written
//
// This folder defines the C library's posix_memalign() and ggml's ggml_backend_buffer_clear() for
// the whole program. Without a ContextMemory both do what the libraries' own do.
//
// Thread rule: one ContextMemory a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace moestro {

class ContextMemory {
 public:
  ContextMemory();
  ~ContextMemory();
  ContextMemory(const ContextMemory&) = delete;
  ContextMemory& operator=(const ContextMemory&) = delete;

  // The ContextMemory of the calling thread; nullptr: none lives.
  static ContextMemory* of_this_thread();

  // Bytes of all buffers that were made: cells, states, and values of a chunk. The rest of a
  // context's memory describes graphs.
  uint64_t buffer_bytes() const { return buffer_bytes_; }
  // Bytes of the buffers that were cleared: cells and states.
  uint64_t cleared_bytes() const { return cleared_bytes_; }

  // Counts a block just allocated, and replaces its whole pages by fresh ones if it is large.
  void Allocated(std::span<std::byte> block);
  // Makes the buffer's bytes zeros if its pages are fresh. False: the pages are not fresh, and
  // nothing was done.
  bool Clear(std::span<std::byte> buffer);

 private:
  // Pages within the bytes count as touched from now on.
  void ForgetWithin(std::span<std::byte> bytes);

  std::vector<std::span<std::byte>> fresh_;  // whole pages with zeros that nothing has touched
  uint64_t buffer_bytes_ = 0;
  uint64_t cleared_bytes_ = 0;
};

}  // namespace moestro
