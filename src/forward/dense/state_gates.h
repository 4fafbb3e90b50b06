// SPDX-License-Identifier: MIT
// Functions that turn a projection into how much a state keeps and takes in. Pure.
#pragma once

#include <cmath>

namespace moestro {

// log(1 + e^x), without an overflow for large x.
inline float Softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

inline float Sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

}  // namespace moestro
