// SPDX-License-Identifier: MIT
// The number of tokens of a prompt that are evaluated at once.
#pragma once

#include <cstdint>

#include "core/model_spec.h"

namespace moestro {

inline constexpr uint32_t kLeastChunk = 256;

// A chunk with enough tokens to give each expert 64 rows, between 512 and 2048. An expert that is
// read for one chunk is read again for the next. At 64 rows multiplying takes about as long as
// reading from a disk of 2 GB/s (0.56 bytes a weight, 450 G multiply-adds and additions a second).
// More rows take memory from the slots.
uint32_t PromptChunk(const RouterSpec& router);
// `chunk`, or a half, a quarter, ... of it: the largest whose buffers, `work` bytes for `chunk`
// tokens, are half of `room` bytes at most. No fewer than kLeastChunk tokens unless `chunk` has
// fewer. (Four layers of Qwen3-30B's shape in 760 MiB: with 1024, 512, 256 and 128 tokens 387, 381,
// 341 and 223 tok/s in a prompt of 2048 and 25.1, 27.2, 27.4 and 28.0 in decode.)
uint32_t ChunkWithin(uint32_t chunk, uint64_t work, uint64_t room);
// The requested chunk; if that is 0, PromptChunk().
uint32_t ChunkFor(uint32_t asked, const RouterSpec& router);

}  // namespace moestro
