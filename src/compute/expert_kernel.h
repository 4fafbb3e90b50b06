// SPDX-License-Identifier: MIT
// Matrix rows times activations for one expert matrix, on the CPU, for every type that ggml's CPU
// backend multiplies. Activations are quantised once (per token and matrix width) to the type that
// the kernel of the weights reads, as in ggml.
//
// A token's result does not depend on which or how many other tokens are in the call, nor on how
// rows are split: bit-identity across chunk sizes and budgets rests on that. Kernels are pure
// functions; any thread may call them.
#pragma once

#include <ggml-cpu.h>
#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/ids.h"

namespace moestro {

struct ExpertKernel {
  ggml_type weight_type = GGML_TYPE_COUNT;
  ggml_type activation_type = GGML_TYPE_COUNT;  // ggml's type of the numbers from `quantise`
  const char* name = "";                        // "avx512vnni", "ggml": for bench output

  // Bytes of one quantised activation vector of n weights, padded to 64. REQUIRES: n is a multiple
  // of the block sizes of weight_type and activation_type, as in every ggml matrix of that type.
  size_t activation_bytes(int64_t n) const;
  // n floats -> activation_bytes(n) bytes at `to` (64-byte aligned). The bytes are a layout of the
  // kernel's own: two kernels may share them only if their `quantise` and `activation_type` are
  // equal.
  void (*quantise)(const ExpertKernel& self, const float* from, std::byte* to, int64_t n) = nullptr;

  // out[t][r] = dot(row r of W, activations[t]) for r in [0, n_rows), t in [0, n_tokens). `rows` is
  // the first row, rows follow each other at `row_bytes`; the address of `rows` may have any
  // alignment that is a multiple of the type's scalar (GGUF allows 32-byte and smaller alignment).
  // out[t] points to n_rows floats. `next` points to the bytes that this thread reads after the
  // call, perhaps in another matrix (nullptr: not known). The bytes at `next` are prefetched while
  // the last rows are multiplied, and never dereferenced. On cold weights the prefetch is worth a
  // quarter of the speed of short calls. Fastest when n_rows is a multiple of 16.
  struct Call {
    const std::byte* rows;
    size_t row_bytes;
    int64_t n_in;
    int64_t n_rows;
    const std::byte* const* activations;  // [n_tokens]
    float* const* out;                    // [n_tokens]
    int64_t n_tokens;
    const std::byte* next = nullptr;
    size_t next_bytes = 0;
    bool is_interleaved = false;  // the rows went through `interleave`
  };
  void (*multiply)(const ExpertKernel& self, const Call& call) = nullptr;

  // Lays rows out in the order that this kernel reads fastest, within the bytes of the rows: as one
  // stream instead of a stream for each lane of a register. Products have the same bits. A matrix
  // may be split between calls of `interleave`, and of `multiply`, at multiples of
  // kInterleavedRows. `scratch`: kInterleavedRows * row_bytes bytes. null: this kernel has no such
  // layout.
  static constexpr int64_t kInterleavedRows = 16;
  struct Matrix {
    std::byte* rows;
    size_t row_bytes;
    int64_t n_rows;
  };
  void (*interleave)(const Matrix& matrix, std::byte* scratch) = nullptr;

  // For the functions above; callers have no use for them.
  int64_t activation_block = 1;            // weights that share a block of a quantised activation
  size_t activation_block_bytes = 0;       // bytes of such a block in this kernel's layout
  ggml_from_float_t from_float = nullptr;  // ggml's quantisation to activation_type
  ggml_vec_dot_t vec_dot = nullptr;        // ggml's dot product; null: dequantise
  const uint32_t* grid = nullptr;  // the weights that indices stand for (kernels/operands.h)
};

// The fastest kernel for this machine. kUnsupported for a type the CPU backend cannot multiply.
// `allow_own` = false gives the generic kernel (ggml's vec_dot), for tests and comparison.
// Loads ggml's backends if they are not loaded.
Result<ExpertKernel> FindExpertKernel(ggml_type type, bool allow_own = true);

// Kernels and sizes for multiplying experts of one form. Entries of a matrix that the form lacks
// are empty.
struct FormKernels {
  std::array<ExpertKernel, kMatrices> kernel;
  std::array<size_t, kMatrices> row_bytes{};
  uint32_t n_embd = 0;
  uint32_t n_ff = 0;

  bool has_gate() const { return row_bytes[static_cast<size_t>(Matrix::kGate)] > 0; }
  // The matrix whose rows are multiplied first.
  Matrix first() const { return has_gate() ? Matrix::kGate : Matrix::kUp; }
};

}  // namespace moestro
