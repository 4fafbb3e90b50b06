// SPDX-License-Identifier: MIT
// RowKernel for vectors V of floats (float_lanes.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "compute/row_kernel.h"

namespace moestro {

// RowKernel::norm.
template <class V>
void NormRow(const RowKernel::Norm& norm) {
  using Float = typename V::Float;
  constexpr uint32_t kSums = 4;  // independent sums, so that no addition waits for another
  const float* from = norm.from;
  Float sums[kSums];
  for (Float& sum : sums) sum = V::Zero();
  uint32_t i = 0;
  for (; i + kSums * V::kLanes <= norm.n; i += kSums * V::kLanes) {
#pragma GCC unroll 4
    for (uint32_t s = 0; s < kSums; ++s) {
      const Float x = V::Load(from + i + s * V::kLanes);
      sums[s] = V::MultiplyAdd(x, x, sums[s]);
    }
  }
  float sum = V::SumOf(V::Add(V::Add(sums[0], sums[1]), V::Add(sums[2], sums[3])));
  for (; i < norm.n; ++i) sum += from[i] * from[i];
  const float factor = 1.0F / std::sqrt(sum / static_cast<float>(norm.n) + norm.eps);
  for (i = 0; i + V::kLanes <= norm.n; i += V::kLanes) {
    const Float x = V::Multiply(V::Load(from + i), V::Broadcast(factor));
    V::Store(norm.to + i, V::Multiply(x, V::Load(norm.weight + i)));
  }
  for (; i < norm.n; ++i) norm.to[i] = from[i] * factor * norm.weight[i];
}

// RowKernel::add.
template <class V>
void AddRows(const float* a, const float* b, float* to, uint32_t n) {
  uint32_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) {
    V::Store(to + i, V::Add(V::Load(a + i), V::Load(b + i)));
  }
  for (; i < n; ++i) to[i] = a[i] + b[i];
}

// RowKernel::turn_halves.
template <class V>
void TurnHalves(float* values, const float* turns, uint32_t n) {
  using Float = typename V::Float;
  const uint32_t half = n / 2;
  uint32_t i = 0;
  for (; i + V::kLanes <= half; i += V::kLanes) {
    const Float x = V::Load(values + i);
    const Float y = V::Load(values + half + i);
    const Float cosine = V::Load(turns + i);
    const Float sine = V::Load(turns + half + i);
    V::Store(values + i, V::Subtract(V::Multiply(x, cosine), V::Multiply(y, sine)));
    V::Store(values + half + i, V::Add(V::Multiply(x, sine), V::Multiply(y, cosine)));
  }
  for (; i < half; ++i) {
    const float x = values[i];
    const float y = values[half + i];
    values[i] = x * turns[i] - y * turns[half + i];
    values[half + i] = x * turns[half + i] + y * turns[i];
  }
}

// RowKernel::turn_neighbours.
template <class V>
void TurnNeighbours(float* values, const float* turns, uint32_t n) {
  for (uint32_t i = 0; i + 1 < n; i += 2) {
    const float x = values[i];
    const float y = values[i + 1];
    values[i] = x * turns[i] - y * turns[i + 1];
    values[i + 1] = x * turns[i + 1] + y * turns[i];
  }
}

template <class V>
inline constexpr RowKernel kRowKernel = {.norm = NormRow<V>,
                                         .add = AddRows<V>,
                                         .turn_halves = TurnHalves<V>,
                                         .turn_neighbours = TurnNeighbours<V>,
                                         .name = V::kName};

}  // namespace moestro
