// SPDX-License-Identifier: MIT
// The loops of compute/state_kernel.h. V is a vector type of one instruction set (float_lanes.h).
// Include only in files compiled for that set.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compute/kernels/float_lanes.h"
#include "compute/state_kernel.h"

namespace moestro {

// Convolves one vector of channels through all tokens; the last inputs stay in registers.
template <class V, uint32_t kTaps, bool kHasSilu>
[[gnu::flatten]] void ConvolveChannels(const StateKernel::Convolution& c, uint32_t channel) {
  using Float = typename V::Float;
  float turned[kTaps][V::kLanes];
  for (uint32_t lane = 0; lane < V::kLanes; ++lane) {
    for (uint32_t tap = 0; tap < kTaps; ++tap) {
      turned[tap][lane] = c.weights[size_t{channel + lane} * kTaps + tap];
    }
  }
  Float weights[kTaps];
  const Float bias = c.bias != nullptr ? V::Load(c.bias + channel) : V::Zero();
  Float inputs[kTaps];  // inputs of a token and of those before, the earliest first
#pragma GCC unroll 4
  for (uint32_t tap = 0; tap < kTaps; ++tap) weights[tap] = V::Load(turned[tap]);
#pragma GCC unroll 4
  for (uint32_t tap = 0; tap + 1 < kTaps; ++tap) {
    inputs[tap + 1] = c.before.at != nullptr ? V::Load(c.before.row(tap) + channel) : V::Zero();
  }
  for (uint32_t t = 0; t < c.n_tokens; ++t) {
#pragma GCC unroll 4
    for (uint32_t tap = 0; tap + 1 < kTaps; ++tap) inputs[tap] = inputs[tap + 1];
    inputs[kTaps - 1] = V::Load(c.x.row(t) + channel);
    Float sum = bias;
#pragma GCC unroll 4
    for (uint32_t tap = 0; tap < kTaps; ++tap) {
      sum = V::MultiplyAdd(weights[tap], inputs[tap], sum);
    }
    if constexpr (kHasSilu) sum = Silu<V>(sum);
    V::Store(c.y.row(t) + channel, sum);
  }
#pragma GCC unroll 4
  for (uint32_t tap = 0; tap + 1 < kTaps; ++tap) {
    V::Store(c.after.row(tap) + channel, inputs[tap + 1]);
  }
}

template <class V, bool kHasSilu>
void ConvolveWith(const StateKernel::Convolution& c) {
  for (uint32_t channel = 0; channel < c.n_channels; channel += V::kLanes) {
    switch (c.n_taps) {
      case 2:
        ConvolveChannels<V, 2, kHasSilu>(c, channel);
        break;
      case 3:
        ConvolveChannels<V, 3, kHasSilu>(c, channel);
        break;
      default:
        ConvolveChannels<V, 4, kHasSilu>(c, channel);
    }
  }
}

// StateKernel::convolve.
template <class V>
void Convolve(const StateKernel::Convolution& c) {
  c.has_silu ? ConvolveWith<V, true>(c) : ConvolveWith<V, false>(c);
}

template <class V>
inline float SumOfSquares(const float* x, uint32_t n) {
  typename V::Float sum = V::Zero();
  for (uint32_t i = 0; i < n; i += V::kLanes) {
    const typename V::Float values = V::Load(x + i);
    sum = V::MultiplyAdd(values, values, sum);
  }
  return V::SumOf(sum);
}

// StateKernel::normalise.
template <class V>
void Normalise(const StateKernel::Norm& norm, StateKernel::RowsOut x) {
  for (uint32_t r = 0; r < norm.n_rows; ++r) {
    float* row = x.row(r);
    const float factor = norm.scale / std::sqrt(SumOfSquares<V>(row, norm.n) + norm.eps);
    for (uint32_t i = 0; i < norm.n; i += V::kLanes) {
      V::Store(row + i, V::Multiply(V::Load(row + i), V::Broadcast(factor)));
    }
  }
}

// Changes a block of columns by one token; the block stays in the first-level cache between the two
// passes (16 KiB with keys of 128 values).
template <class V, bool kIsCorrected, bool kDecaysRows>
[[gnu::flatten]] void UpdateColumns(const StateKernel::Update& u, uint32_t token, uint32_t column,
                                    const float* before, float* after) {
  using Float = typename V::Float;
  constexpr uint32_t kVectors = StateKernel::kColumns / V::kLanes;
  constexpr uint32_t kSums = V::kLanes >= 16 ? 4 : V::kLanes >= 8 ? 2 : 1;  // independent sums
  const float* key = u.keys.row(token);
  const float* query = u.queries.row(token);
  const float* decays = kDecaysRows ? u.row_decays.row(token) : u.decays + token;
  const Float decay = V::Broadcast(decays[0]);
  // key S; if one decay is for all rows, of S before the decay.
  Float sums[kSums][kVectors];
#pragma GCC unroll 8
  for (uint32_t s = 0; s < kSums; ++s) {
#pragma GCC unroll 8
    for (uint32_t v = 0; v < kVectors; ++v) sums[s][v] = V::Zero();
  }
  for (uint32_t i = 0; kIsCorrected && i < u.n_rows; i += kSums) {
#pragma GCC unroll 8
    for (uint32_t s = 0; s < kSums; ++s) {
      const Float factor = V::Broadcast(kDecaysRows ? decays[i + s] * key[i + s] : key[i + s]);
      const float* row = before + size_t{i + s} * StateKernel::kColumns;
#pragma GCC unroll 8
      for (uint32_t v = 0; v < kVectors; ++v) {
        sums[s][v] = V::MultiplyAdd(factor, V::Load(row + v * V::kLanes), sums[s][v]);
      }
    }
  }
  Float change[kVectors];
#pragma GCC unroll 8
  for (uint32_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
    for (uint32_t s = 1; s < kSums; ++s) sums[0][v] = V::Add(sums[0][v], sums[s][v]);
    const Float value = V::Load(u.values.row(token) + column + v * V::kLanes);
    const Float given = kDecaysRows ? sums[0][v] : V::Multiply(decay, sums[0][v]);
    change[v] = V::Multiply(V::Broadcast(u.rates[token]), V::Subtract(value, given));
#pragma GCC unroll 8
    for (uint32_t s = 0; s < kSums; ++s) sums[s][v] = V::Zero();
  }
  // S = decay S + key x change; query S.
  for (uint32_t i = 0; i < u.n_rows; i += kSums) {
#pragma GCC unroll 8
    for (uint32_t s = 0; s < kSums; ++s) {
      const Float factor = V::Broadcast(key[i + s]);
      const Float asked = V::Broadcast(query[i + s]);
      const Float keeps = kDecaysRows ? V::Broadcast(decays[i + s]) : decay;
      const size_t row = size_t{i + s} * StateKernel::kColumns;
#pragma GCC unroll 8
      for (uint32_t v = 0; v < kVectors; ++v) {
        const Float kept = V::Multiply(keeps, V::Load(before + row + v * V::kLanes));
        const Float state = V::MultiplyAdd(factor, change[v], kept);
        V::Store(after + row + v * V::kLanes, state);
        sums[s][v] = V::MultiplyAdd(asked, state, sums[s][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (uint32_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
    for (uint32_t s = 1; s < kSums; ++s) sums[0][v] = V::Add(sums[0][v], sums[s][v]);
    V::Store(u.results.row(token) + column + v * V::kLanes, sums[0][v]);
  }
}

// StateKernel::update.
template <class V>
void UpdateState(const StateKernel::Update& u) {
  const size_t block = size_t{u.n_rows} * StateKernel::kColumns;
  for (uint32_t column = 0; column < u.n_columns; column += StateKernel::kColumns) {
    const size_t at = column / StateKernel::kColumns * block;
    float* after = u.after + at;
    const float* before = u.before != nullptr ? u.before + at : after;
    if (u.before == nullptr) std::memset(after, 0, block * sizeof(float));
    for (uint32_t t = 0; t < u.n_tokens; ++t) {
      if (u.decays == nullptr) {
        u.is_corrected ? UpdateColumns<V, true, true>(u, t, column, before, after)
                       : UpdateColumns<V, false, true>(u, t, column, before, after);
      } else {
        u.is_corrected ? UpdateColumns<V, true, false>(u, t, column, before, after)
                       : UpdateColumns<V, false, false>(u, t, column, before, after);
      }
      before = after;
    }
  }
}

// StateKernel::gate.
template <class V>
void GateRows(const StateKernel::Gate& gate, StateKernel::RowsOut x) {
  using Float = typename V::Float;
  for (uint32_t r = 0; r < gate.n_rows; ++r) {
    float* row = x.row(r);
    const float mean = SumOfSquares<V>(row, gate.n) / static_cast<float>(gate.n);
    const Float factor = V::Broadcast(1.0F / std::sqrt(mean + gate.eps));
    for (uint32_t i = 0; i < gate.n; i += V::kLanes) {
      const Float normed =
          V::Multiply(V::Multiply(V::Load(row + i), factor), V::Load(gate.weight + i));
      const Float by = V::Load(gate.gate.row(r) + i);
      V::Store(row + i,
               gate.is_sigmoid ? TimesSigmoid<V>(normed, by) : V::Multiply(normed, Silu<V>(by)));
    }
  }
}

// StateKernel::pass.
template <class V>
void PassRows(const StateKernel::Pass& pass, StateKernel::RowsOut x) {
  using Float = typename V::Float;
  const Float factor = V::Broadcast(pass.factor);
  for (uint32_t r = 0; r < pass.n_rows; ++r) {
    float* row = x.row(r);
    for (uint32_t i = 0; i < pass.n; i += V::kLanes) {
      const Float sum = V::MultiplyAdd(factor, V::Load(pass.passed.row(r) + i), V::Load(row + i));
      V::Store(row + i, V::Multiply(sum, Silu<V>(V::Load(pass.gate.row(r) + i))));
    }
  }
}

template <class V>
inline constexpr StateKernel kStateKernel = {.convolve = Convolve<V>,
                                             .normalise = Normalise<V>,
                                             .update = UpdateState<V>,
                                             .gate = GateRows<V>,
                                             .pass = PassRows<V>,
                                             .name = V::kName};

}  // namespace moestro
