// SPDX-License-Identifier: MIT
// The number of tokens of a prompt that are evaluated at once.
#pragma once

#include <cstdint>

#include "core/model_spec.h"

namespace moestro {

// The chunk depends on the model alone, so that a prompt is cut in the same way in every budget. It
// has enough tokens to give each expert 64 rows, between 512 and 2048. An expert that is read for
// one chunk is read again for the next. At 64 rows multiplying takes about as long as reading from
// a disk of 2 GB/s (0.56 bytes a weight, 450 G multiply-adds and additions a second). More rows
// take memory from the slots.
uint32_t PromptChunk(const RouterSpec& router);
// The requested chunk; if that is 0, PromptChunk().
uint32_t ChunkFor(uint32_t asked, const RouterSpec& router);

}  // namespace moestro
