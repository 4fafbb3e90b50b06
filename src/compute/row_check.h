// SPDX-License-Identifier: MIT
// Tests whether ggml multiplies a row of activations to the same bits whatever rows are beside it.
// ggml does not promise that: some of its plug-ins take another kernel from a number of rows on
// (docs/decisions/0007), and no function reports which. So made-up weights are multiplied and
// compared.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>

#include "base/result.h"
#include "compute/cpu_device.h"

namespace moestro {

// Weights of matrices that are multiplied for their own sake: to see how fast that is, and whether
// two ways give the same bits.

// Whether ggml makes tables for seconds before the first weight of the type is quantised: IQ1, IQ2.
bool IsSlowToQuantise(ggml_type type);

// Fills `rows` with rows of n_in weights each: `values` quantised, or random weights of about that
// size where the type is slow to quantise. Importances are equal. Any thread.
// REQUIRES: values.size() a multiple of n_in; rows.size() the bytes of as many rows.
void MakeUpWeights(ggml_type type, std::span<const float> values, int64_t n_in,
                   std::span<std::byte> rows);

class RowCheck {
 public:
  // `device` must outlive this.
  explicit RowCheck(const CpuDevice& device) : device_(device) {}

  struct Matrix {
    ggml_type type = GGML_TYPE_F32;
    int64_t n_in = 0;
    int64_t n_out = 0;
    ggml_backend_buffer_type_t where = nullptr;  // the layout
  };
  // Takes milliseconds for each type, width and layout, once. A matrix that cannot be tried does
  // not pass: ggml does not multiply it in that layout, memory is short, or the type requires the
  // importance of each weight.
  bool Passes(const Matrix& matrix);

 private:
  Result<bool> Try(const Matrix& matrix) const;

  const CpuDevice& device_;
  std::map<std::tuple<ggml_type, int64_t, int64_t, ggml_backend_buffer_type_t>, bool> known_;
};

}  // namespace moestro
