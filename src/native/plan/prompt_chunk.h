// SPDX-License-Identifier: MIT
// How many tokens of a prompt are evaluated at once.
#pragma once

#include <cstdint>

#include "core/model_spec.h"

namespace moestro {

// From the model alone, so that the same prompt is cut alike in every budget: enough tokens that
// each expert gets 64 rows, between 512 and 2048. An expert that is read for one chunk is read
// again for the next. At 64 rows multiplying takes about as long as reading from a disk of 2 GB/s
// does (0.56 bytes a weight, 450 G multiply-adds and additions a second); more rows take memory
// that slots could have.
uint32_t PromptChunk(const RouterSpec& router);
// What was asked for; 0: PromptChunk().
uint32_t ChunkFor(uint32_t asked, const RouterSpec& router);

}  // namespace moestro
