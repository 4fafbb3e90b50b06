// SPDX-License-Identifier: MIT
// Tests whether a device computes attention as exactly as plain loops, because its fused kernel
// differs from the CPU's.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml-backend.h>

#include <cstdint>

#include "base/result.h"
#include "forward/dense/attention.h"

namespace moestro {

// The mean square of the difference between MaskedAttention on the device and plain loops in double
// precision, divided by the mean square of the loops' results. The input is a prompt of `rows`
// random rows with heads of this shape; at most the heads that share two heads of keys are
// computed. Not a number if the device's results are not numbers. kDevice, kNoMemory. REQUIRES: the
// device computes flash attention of this shape.
Result<double> AttentionDifference(ggml_backend_t backend, const AttentionShape& shape,
                                   uint32_t rows);

// The most that is allowed: queries rounded to 8 bits beside keys of 8 bits give 3e-5, a device
// that leaves rows out or mixes them up 1e-2 and more.
inline constexpr double kMostAttentionDifference = 5e-4;

}  // namespace moestro
