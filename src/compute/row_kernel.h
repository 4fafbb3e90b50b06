// SPDX-License-Identifier: MIT
// The work on a row of activations between two products, for the instruction sets that machines
// have. All arithmetic is F32, in an order that depends on n and the kernel alone. Kernels are pure
// functions; any thread may call them. Memory is aligned to 4 bytes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace moestro {

struct RowKernel {
  // to[i] = from[i] / sqrt(mean of from[j]^2 + eps) * weight[i]
  struct Norm {
    const float* from;
    const float* weight;
    float* to;  // may be `from`
    uint32_t n;
    float eps;
  };
  void (*norm)(const Norm& norm) = nullptr;
  // to[i] = a[i] + b[i]; `to` may be `a` or `b`.
  void (*add)(const float* a, const float* b, float* to, uint32_t n) = nullptr;
  // Turns pairs of values: (x, y) -> (x cos - y sin, x sin + y cos). Pairs are the halves [0, n /
  // 2) and [n / 2, n), or neighbours; `turns` has the cosine in the place of x, the sine in that of
  // y.
  using Turn = void (*)(float* values, const float* turns, uint32_t n);
  Turn turn_halves = nullptr;
  Turn turn_neighbours = nullptr;

  std::string_view name;

  static RowKernel ForThisMachine();
  // All kernels that this machine runs, the fastest first; the last one runs everywhere.
  static std::vector<RowKernel> AllHere();
};

// The RMS norm of a model.
struct RowNorm {
  RowKernel kernel;
  float eps = 0.0F;
};

}  // namespace moestro
