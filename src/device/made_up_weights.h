// SPDX-License-Identifier: MIT
// Weights of matrices that are multiplied for their own sake: to see how fast that is, and whether
// two ways give the same bits.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace moestro {

// Whether ggml makes tables for seconds before the first weight of the type is quantised: IQ1, IQ2.
bool IsSlowToQuantise(ggml_type type);

// Fills `rows` with rows of n_in weights each: `values` quantised, or random weights of about that
// size where the type is slow to quantise. Importances are equal. Any thread.
// REQUIRES: values.size() a multiple of n_in; rows.size() the bytes of as many rows.
void MakeUpWeights(ggml_type type, std::span<const float> values, int64_t n_in,
                   std::span<std::byte> rows);

}  // namespace moestro
