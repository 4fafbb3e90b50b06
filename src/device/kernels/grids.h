// SPDX-License-Identifier: MIT
// The tables of types whose weights are named by indices: an index stands for four or eight weights
// without signs, the nearest points of a grid. ggml keeps these tables to itself, so they are read
// off its own to_float, from made-up blocks that hold every index once.
#pragma once

#include <ggml.h>

#include <cstdint>

namespace moestro {

// Entry after entry, one byte for a weight, in words of four; `is_shifted` adds 128 to each.
// nullptr for a type without a grid. Made by the first call for its type; lives as long as the
// program. Any thread may call.
const uint32_t* GridOf(ggml_type type, bool is_shifted);

}  // namespace moestro
