// SPDX-License-Identifier: MIT
// Turns projections into the share that a state keeps and the share that it takes in. Pure.
#pragma once

#include <cmath>

namespace moestro {

// log(1 + e^x), without an overflow for large x.
inline float Softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

inline float Sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

}  // namespace moestro
