// SPDX-License-Identifier: MIT
// Parts of writing a large GGUF front to back with little memory: keys and directory by gguf.h,
// then each tensor's bytes by the code that makes them, padded to the alignment. One thread.
#pragma once

#include <ggml-cpp.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"

namespace moestro {

// Numbered pieces of work made by several threads and taken in their order by one, for files that
// are written front to back.

using MakePiece = std::function<Result<std::vector<std::byte>>(uint64_t piece)>;
using TakePiece = std::function<Status(std::span<const std::byte> bytes)>;

// Makes pieces 0 to n - 1 on `threads` threads of its own and passes each to `take` in the calling
// thread; at most 2 * threads + 1 pieces exist at a time. The threads have ended when the call
// returns. Fails with the first error in the pieces' order, of `make` or `take`; kNoMemory when a
// thread cannot be started. REQUIRES: threads > 0; `make` may be called by several threads at a
// time.
Status RunInOrder(uint64_t n, uint32_t threads, const MakePiece& make, const TakePiece& take);

// A GGUF without keys and tensors; tensors added later start at multiples of `alignment`, a power
// of two.
gguf_context_ptr NewGguf(uint32_t alignment = GGUF_DEFAULT_ALIGNMENT);

// The keys of a GGUF file for which `keep` returns true. Fails with kInvalidFile. REQUIRES: the
// file is trusted, or GgufFile::Open() has accepted it.
Result<gguf_context_ptr> ReadKeys(const std::string& path,
                                  const std::function<bool(std::string_view key)>& keep);

// Adds the next tensor of the file; ne: one to four sizes, values in a row first.
void AddTensor(gguf_context* gguf, const std::string& name, ggml_type type,
               std::span<const int64_t> ne);

// The finished header, padded to where the first tensor begins.
std::vector<std::byte> HeaderBytes(const gguf_context* gguf);

// Writes zeros up to the next multiple of `alignment`, at most 4096. Errors: those of Write().
Status PadTo(OutputFile& file, uint64_t alignment);

// Checks before any write. kIo: `path` leads to a file that may not be replaced, or cannot be
// written (OutputFile::Create()); the disk under it has less than `bytes` free.
Status CheckMayWrite(const OutputPath& path, bool overwrite);
Status CheckRoom(const OutputPath& path, uint64_t bytes);

}  // namespace moestro
