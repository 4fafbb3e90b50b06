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

#include <cstdint>
#include <map>
#include <tuple>

#include "base/result.h"
#include "device/cpu_device.h"

namespace moestro {

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
