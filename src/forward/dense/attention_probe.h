// SPDX-License-Identifier: MIT
// Whether a device attends as exactly as plain loops: its kernel is a fused one of its own.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml-backend.h>

#include <cstdint>

#include "base/result.h"
#include "forward/dense/attention.h"

namespace moestro {

// Mean square of the difference between MaskedAttention there and plain loops in double precision
// over that of the loops' results: a prompt of `rows` random rows with heads of this shape, of
// which no more are computed than share two heads of keys. Not a number if the device computes
// none. kDevice, kNoMemory. REQUIRES: the device computes flash attention of this shape.
Result<double> AttentionDifference(ggml_backend_t backend, const AttentionShape& shape,
                                   uint32_t rows);

// The most that is allowed: queries rounded to 8 bits beside keys of 8 bits give 3e-5, a device
// that leaves rows out or mixes them up 1e-2 and more.
inline constexpr double kMostAttentionDifference = 5e-4;

}  // namespace moestro
