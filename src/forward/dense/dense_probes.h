// SPDX-License-Identifier: MIT
// Measurements of the dense part, and keys and values made up for them.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <cstdint>
#include <span>

#include "base/result.h"
#include "compute/cpu_device.h"
#include "compute/devices.h"
#include "core/kv_cells.h"
#include "forward/dense/attention.h"
#include "memory/layer_values.h"

namespace moestro {

// Tests whether a device multiplies as exactly as the CPU. Half-precision shaders are less exact
// for some types.

// The mean square of the difference between both products, divided by the mean square of the CPU's
// product, for a matrix of random numbers of `type` and this many rows. kDevice, kNoMemory.
Result<double> DenseDifference(const ComputeDevice& device, const CpuDevice& cpu, ggml_type type,
                               uint32_t rows);

// The largest difference that is allowed: for quantised types the limit of ggml for its backends,
// which round activations as coarsely as the CPU; for other types the error of rounding activations
// to the type.
double MostDenseDifference(ggml_type type);

// Tests whether a device computes attention as exactly as plain loops, because its fused kernel
// differs from the CPU's.
//
// Thread rule: the engine thread.

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

// Makes up keys and values without computing them, for measuring the cost of a long context.

// Fills cells (`recent` in layers that have cells of the last positions alone) with seeded numbers
// of about N(0, 1), different in each cell, equal on every machine. kDevice.
Status MakeUpCells(const KvCache& kv, std::span<const CellRun> cells,
                   std::span<const CellRun> recent, uint64_t seed);

}  // namespace moestro
