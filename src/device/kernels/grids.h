// SPDX-License-Identifier: MIT
// The tables of types whose weights are stored as indices: an index stands for four or eight
// weights without signs, the nearest points of a grid. ggml does not export these tables, so they
// are read through ggml's to_float, from made-up blocks that hold every index once.
#pragma once

#include <ggml.h>

#include <cstdint>

namespace moestro {

// The table of a type: entry after entry, one byte per weight, in words of four; `is_shifted` adds
// 128 to each byte. nullptr for a type without a grid. Made by the first call for the type; lives
// as long as the program. Any thread may call.
const uint32_t* GridOf(ggml_type type, bool is_shifted);

}  // namespace moestro
