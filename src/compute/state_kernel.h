// SPDX-License-Identifier: MIT
// The inner loops of mixers that keep a state (forward/dense/mixers/delta_net.h), for the
// instruction sets that machines have: a short causal convolution, and a matrix that every token
// changes.
//
// Tokens are taken one after the other, in F32: a result depends on the state and the earlier
// tokens alone, to the bit, and not on the number of tokens of a call. Kernels are pure functions;
// any thread may call them. Memory is aligned to 4 bytes. Source: S. Yang, J. Kautz, A.
// Hatamizadeh, "Gated Delta Networks", 2024.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace moestro {

struct StateKernel {
  static constexpr uint32_t kColumns = 32;  // columns of a block; heads have multiples of kColumns
  static constexpr uint32_t kFewestTaps = 2;
  static constexpr uint32_t kMostTaps = 4;

  // Row i of a matrix begins at at + i * stride.
  struct Rows {
    const float* at = nullptr;
    size_t stride = 0;
    const float* row(size_t i) const { return at + i * stride; }
  };
  struct RowsOut {
    float* at = nullptr;
    size_t stride = 0;
    float* row(size_t i) const { return at + i * stride; }
  };

  // y[t][c] = f(bias[c] + sum over taps of weights[c][tap] * x[t - n_taps + 1 + tap][c]), f being
  // silu or nothing.
  struct Convolution {
    uint32_t n_tokens;
    uint32_t n_channels;  // a multiple of 16
    uint32_t n_taps;
    const float* weights;  // [n_channels][n_taps], the earliest token's weight first
    const float* bias;     // [n_channels]; null: zeros
    bool has_silu;
    Rows x;         // [n_tokens][n_channels]
    Rows before;    // [n_taps - 1][n_channels]: the inputs before, the earliest first;
                    // null: zeros
    RowsOut after;  // [n_taps - 1][n_channels] after these tokens; may be `before`
    RowsOut y;      // [n_tokens][n_channels]
  };
  void (*convolve)(const Convolution& c) = nullptr;

  // x[i] *= scale / sqrt(sum of x[i]^2 + eps), for rows of `n` values, a multiple of 16.
  struct Norm {
    uint32_t n_rows;
    uint32_t n;
    float eps;
    float scale;
  };
  void (*normalise)(const Norm& norm, RowsOut x) = nullptr;

  // For each token, with a head's matrix S [n_rows][n_columns]:
  //   S *= decay;  S += key x change;  result = query S,
  // where a decay is for all rows or for each row, and change = rate * (value - key S) if the
  // matrix is corrected, or else rate * value.
  struct Update {
    bool is_corrected;
    uint32_t n_tokens;
    uint32_t n_rows;       // values of a key; a multiple of 4
    uint32_t n_columns;    // values of a value; a multiple of kColumns
    const float* before;   // [n_columns / kColumns][n_rows][kColumns]; null: zeros
    float* after;          // matrix after these tokens; may be `before`
    Rows keys;             // [n_tokens][n_rows]
    Rows queries;          // [n_tokens][n_rows]
    Rows values;           // [n_tokens][n_columns]
    const float* decays;   // [n_tokens]; null: each row has a decay
    Rows row_decays = {};  // [n_tokens][n_rows]
    const float* rates;    // [n_tokens]
    RowsOut results;       // [n_tokens][n_columns]
  };
  void (*update)(const Update& u) = nullptr;

  // x[i] = x[i] / rms(x[i]) * weight * f(gate[i]), f being silu or the sigmoid, for rows of `n`
  // values, a multiple of 16.
  struct Gate {
    uint32_t n_rows;
    uint32_t n;
    float eps;
    bool is_sigmoid;
    const float* weight;  // [n]
    Rows gate;            // [n_rows][n]
  };
  void (*gate)(const Gate& gate, RowsOut x) = nullptr;

  // x[i] = (x[i] + factor * passed[i]) * silu(gate[i]), for rows of `n` values, a multiple of 16.
  struct Pass {
    uint32_t n_rows;
    uint32_t n;
    float factor;
    Rows passed;  // [n_rows][n]
    Rows gate;    // [n_rows][n]
  };
  void (*pass)(const Pass& pass, RowsOut x) = nullptr;

  std::string_view name;

  static StateKernel ForThisMachine();
  // All kernels that this machine runs, the fastest first; the last one runs everywhere.
  static std::vector<StateKernel> AllHere();
};

}  // namespace moestro
