// SPDX-License-Identifier: MIT
// Limits the rows of a step that a graph of one layer has on the CPU. Pure.
#pragma once

#include <cstdint>

#include "forward/dense/tensors.h"

namespace moestro {

// The number of rows with which the largest product of a graph takes some 20 ms on `threads`
// threads, so that a stop takes effect soon: a graph ends between products, not within one.
uint32_t PieceRows(const ModelTensors& tensors, uint32_t threads);

}  // namespace moestro
