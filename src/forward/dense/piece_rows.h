// SPDX-License-Identifier: MIT
// How many rows of a step a graph of one layer has on the CPU. Pure.
#pragma once

#include <cstdint>

#include "forward/dense/tensors.h"

namespace moestro {

// Rows with which the largest product of a graph takes some 20 ms on so many threads, so that a
// stop is not waited for: a graph is left between products, not within one.
uint32_t PieceRows(const ModelTensors& tensors, uint32_t threads);

}  // namespace moestro
