// SPDX-License-Identifier: MIT
// ggml takes the memory of a context's cells and buffers from posix_memalign(), and libllama clears
// the cells at once. In pages of 4 KiB the first touch of a few GiB takes seconds. While a
// HugeBlocks lives, large blocks of its thread lie in huge pages.
//
// This folder defines the C library's posix_memalign() for the whole program. Outside a HugeBlocks
// its blocks are the C library's, and free() takes them in any case.
//
// Thread rule: one HugeBlocks a thread.
#pragma once

namespace moestro {

class HugeBlocks {
 public:
  HugeBlocks();
  ~HugeBlocks();
  HugeBlocks(const HugeBlocks&) = delete;
  HugeBlocks& operator=(const HugeBlocks&) = delete;
};

}  // namespace moestro
