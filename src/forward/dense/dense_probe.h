// SPDX-License-Identifier: MIT
// Tests whether a device multiplies as exactly as the CPU. Half-precision shaders are less exact
// for some types.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <cstdint>

#include "base/result.h"
#include "device/cpu_device.h"
#include "device/devices.h"

namespace moestro {

// The mean square of the difference between both products, divided by the mean square of the CPU's
// product, for a matrix of random numbers of `type` and this many rows. kDevice, kNoMemory.
Result<double> DenseDifference(const ComputeDevice& device, const CpuDevice& cpu, ggml_type type,
                               uint32_t rows);

// The largest difference that is allowed: for quantised types the limit of ggml for its backends,
// which round activations as coarsely as the CPU; for other types the error of rounding activations
// to the type.
double MostDenseDifference(ggml_type type);

}  // namespace moestro
