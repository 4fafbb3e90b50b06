// SPDX-License-Identifier: MIT
// Matrices of heads times activations as nodes of a graph: each head's values times the head's own
// matrix, which lies as in the file. A row's product has the same bits whatever rows are beside it.
//
// Thread rule: Node() and the graph on the engine thread; the nodes themselves run on all threads
// of the team.
#pragma once

#include <ggml-cpp.h>
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "compute/expert_kernel.h"

namespace moestro {

class HeadProducts {
 public:
  // matrices [n_in, n_out, n_head] in memory, rows of a matrix one after the other; x F32 [n_in,
  // n_head, rows], the values of a head one after the other -> [n_out, n_head, rows]. This must
  // outlive the graph. REQUIRES: FindExpertKernel() has a kernel for the type.
  ggml_tensor* Node(ggml_context* ctx, ggml_tensor* matrices, ggml_tensor* x);

 private:
  // A kernel of ours for weights that a WeightSet gave one (compute/weight_set.h), else ggml's.
  const ExpertKernel& KernelFor(const ggml_tensor* matrices);

  struct Known {
    ggml_type type = GGML_TYPE_COUNT;
    bool is_own = false;
    std::unique_ptr<const ExpertKernel> kernel;
  };
  std::vector<Known> known_;
};

// Some rows of each head of a matrix, transposed: a vector that multiplied a row's values can then
// be multiplied by the rows. In memory; F32 if the matrix is F32 or BF16, else F16.
//
// Thread rule: the engine thread.

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
