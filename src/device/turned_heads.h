// SPDX-License-Identifier: MIT
// Some rows of each head of a matrix, transposed: a vector that multiplied a row's values can then
// be multiplied by the rows. In memory; F32 if the matrix is F32 or BF16, else F16.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml-cpp.h>
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/backend_buffer.h"

namespace moestro {

class TurnedHeads {
 public:
  // A matrix [n_row, n_head * (n_turned + n_left)]: the first n_turned rows of each head are
  // transposed.
  struct Matrix {
    ggml_type type = GGML_TYPE_F32;
    uint32_t n_row = 0;
    uint32_t n_head = 0;
    uint32_t n_turned = 0;
    uint32_t n_left = 0;
  };
  static uint64_t BytesFor(std::span<const Matrix> matrices);
  // kNoMemory.
  static Result<TurnedHeads> Allocate(std::span<const Matrix> matrices);
  // [n_turned, n_row, n_head]; valid as long as this.
  ggml_tensor* tensor(size_t i) const { return turned_[i]; }
  // REQUIRES: `from` is matrix i, in memory and in GGUF layout.
  void Fill(size_t i, const ggml_tensor* from) const;

 private:
  std::vector<Matrix> matrices_;
  BackendBuffer buffer_;
  ggml_context_ptr context_;
  std::vector<ggml_tensor*> turned_;
};

}  // namespace moestro
