// SPDX-License-Identifier: MIT
// Whether a device multiplies as exactly as the CPU. Half-precision shaders do not for all types.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <cstdint>

#include "base/result.h"
#include "device/cpu_device.h"
#include "device/devices.h"

namespace moestro {

// Mean square of the difference between the products of both over that of the CPU's, for a matrix
// of random numbers of `type` and so many rows. kDevice, kNoMemory.
Result<double> DenseDifference(const ComputeDevice& device, const CpuDevice& cpu, ggml_type type,
                               uint32_t rows);

// The most that is allowed: for quantised types what ggml allows its backends, whose activations
// are rounded as coarsely as the CPU's; for the others what rounding activations to the type gives.
double MostDenseDifference(ggml_type type);

}  // namespace moestro
