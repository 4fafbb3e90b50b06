// SPDX-License-Identifier: MIT
// The stages of an expert, each cut into tasks that any thread may take:
//
//   inputs     x [rows][n_embd]                  -> quantised for the gate and up matrices
//   hidden     gate, up [n_ff][n_embd] times x   -> activation(gate x, up x), [pairs][n_ff]
//   quantise   products [pairs][n_ff]            -> quantised for the down matrix
//   down       down [n_embd][n_ff] times product -> results [pairs][n_embd]
//   sum        results by router order           -> hidden [rows][n_embd]
//
// A task that a stop cuts short leaves its results undefined, and no code reads them.
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "compute/expert_kernel.h"
#include "compute/product_node.h"
#include "forward/experts/layer_run.h"

namespace moestro {

void LayerRun::QuantiseInputs(int thread, int n_threads) {
  for (uint32_t i = 0; i < s_.is_input_used.size(); ++i) {
    if (!s_.is_input_used[i]) continue;
    const ExpertKernel& kernel = s_.input_kernels[i];
    const uint32_t n_embd = s_.limits.n_embd;
    for (auto row = static_cast<uint32_t>(thread); row < plan_.n_rows;
         row += static_cast<uint32_t>(n_threads)) {
      kernel.quantise(kernel, rows_.ffn_in + size_t{row} * n_embd, input_of(i, row), n_embd);
    }
  }
}

// Rows of an expert are taken in groups that fit arrays on the stack.
constexpr uint32_t kGroup = 64;

// Adds the bias to weight rows [row, row + rows.size()) of a matrix's result for one row of the
// step.
void LayerRun::AddBias(size_t m, size_t j, uint32_t row, std::span<float> rows) const {
  const float* biases = layer_.bias[m];
  if (biases == nullptr) return;
  const FormKernels& f = *s_.jobs[j].form->kernels;
  const uint32_t width = m == kMatrixDown ? f.n_embd : f.n_ff;
  const float* bias = biases + size_t{plan_.experts[j].key.expert.value} * width + row;
  for (size_t r = 0; r < rows.size(); ++r) rows[r] += bias[r];
}

// Multiplies weight rows [row, row + n_rows) of gate and up with all rows of the step that the
// expert has.
void LayerRun::MultiplyHidden(size_t j, RowBlock block, int thread, const std::byte* following) {
  const PlannedExpert& expert = plan_.experts[j];
  const RunForm& form = *s_.jobs[j].form;
  const FormKernels& f = *form.kernels;
  const auto [row, n_rows] = block;
  std::array<const std::byte*, kGroup> x{};
  std::array<float*, kGroup> out{};
  std::vector<float>& up_rows = s_.up_rows[static_cast<size_t>(thread)];
  Interleave(j, kMatrixGate, block, thread);
  Interleave(j, kMatrixUp, block, thread);
  if (up_rows.size() < size_t{kGroup} * n_rows) up_rows.resize(size_t{kGroup} * n_rows);
  for (uint32_t first = 0; first < expert.n_pairs; first += kGroup) {
    if (first > 0 && ShallEnd()) return;
    const uint32_t n = std::min(kGroup, expert.n_pairs - first);
    const auto multiply = [&, row = row, n_rows = n_rows](size_t m, float* base, size_t stride,
                                                          const std::byte* next) {
      for (uint32_t i = 0; i < n; ++i) {
        x[i] = input_of(form.input[m], plan_.row_of[expert.first_pair + first + i]);
        out[i] = base + i * stride;
      }
      const ExpertKernel& kernel = f.kernel[m];
      kernel.multiply(kernel, {.rows = s_.jobs[j].matrix[m] + row * f.row_bytes[m],
                               .row_bytes = f.row_bytes[m],
                               .n_in = f.n_embd,
                               .n_rows = n_rows,
                               .activations = x.data(),
                               .out = out.data(),
                               .n_tokens = n,
                               .next = next,
                               .next_bytes = next != nullptr ? f.row_bytes[m] * 16 : 0,
                               .is_interleaved = is_interleaved(j, m)});
    };
    float* products = s_.products + size_t{expert.first_pair + first} * f.n_ff + row;
    if (f.has_gate()) {
      multiply(kMatrixGate, products, f.n_ff,
               s_.jobs[j].matrix[kMatrixUp] + row * f.row_bytes[kMatrixUp]);
      multiply(kMatrixUp, up_rows.data(), n_rows, following);
    } else {
      multiply(kMatrixUp, products, f.n_ff, following);
    }
    for (uint32_t i = 0; i < n; ++i) {
      float* g = products + size_t{i} * f.n_ff;
      float* u = f.has_gate() ? up_rows.data() + size_t{i} * n_rows : g;
      if (f.has_gate()) AddBias(kMatrixGate, j, row, {g, n_rows});
      AddBias(kMatrixUp, j, row, {u, n_rows});
      Join(layer_.activation, {u, n_rows}, {g, n_rows}, layer_.limit);
    }
  }
}

void LayerRun::QuantiseProduct(size_t j, uint32_t i) {
  const size_t pair = plan_.experts[j].first_pair + i;
  const FormKernels& f = *s_.jobs[j].form->kernels;
  const ExpertKernel& kernel = f.kernel[kMatrixDown];
  kernel.quantise(kernel, s_.products + pair * f.n_ff,
                  s_.products_q + pair * s_.limits.activation_bytes_ff, f.n_ff);
}

// Multiplies weight rows [row, row + n_rows) of down with all rows of the step that the expert has.
void LayerRun::MultiplyDown(size_t j, RowBlock block, int thread, const std::byte* next) {
  const PlannedExpert& expert = plan_.experts[j];
  const FormKernels& f = *s_.jobs[j].form->kernels;
  const auto [row, n_rows] = block;
  const ExpertKernel& kernel = f.kernel[kMatrixDown];
  Interleave(j, kMatrixDown, block, thread);
  std::array<const std::byte*, kGroup> x{};
  std::array<float*, kGroup> out{};
  for (uint32_t first = 0; first < expert.n_pairs; first += kGroup) {
    if (first > 0 && ShallEnd()) return;
    const uint32_t n = std::min(kGroup, expert.n_pairs - first);
    for (uint32_t i = 0; i < n; ++i) {
      const size_t pair = expert.first_pair + first + i;
      x[i] = s_.products_q + pair * s_.limits.activation_bytes_ff;
      out[i] = s_.results + pair * f.n_embd + row;
    }
    kernel.multiply(kernel,
                    {.rows = s_.jobs[j].matrix[kMatrixDown] + row * f.row_bytes[kMatrixDown],
                     .row_bytes = f.row_bytes[kMatrixDown],
                     .n_in = f.n_ff,
                     .n_rows = n_rows,
                     .activations = x.data(),
                     .out = out.data(),
                     .n_tokens = n,
                     .next = next,
                     .next_bytes = next != nullptr ? f.row_bytes[kMatrixDown] * 16 : 0,
                     .is_interleaved = is_interleaved(j, kMatrixDown)});
    for (uint32_t i = 0; i < n; ++i) AddBias(kMatrixDown, j, row, {out[i], n_rows});
  }
}

// hidden [rows][n_embd] = sum over K of weight * result, then shared, then residual. Columns are
// split between threads, not rows: one row is the common case.
void LayerRun::SumUp(int thread, int n_threads) {
  const uint32_t width = s_.limits.n_embd;
  const size_t stride = rows_.hidden_stride > 0 ? rows_.hidden_stride : width;
  const uint32_t begin = width * static_cast<uint32_t>(thread) / static_cast<uint32_t>(n_threads);
  const uint32_t end = width * static_cast<uint32_t>(thread + 1) / static_cast<uint32_t>(n_threads);
  for (uint32_t row = 0; row < plan_.n_rows; ++row) {
    if (row > 0 && row % kGroup == 0 && ShallEnd()) return;
    float* out = rows_.hidden + row * stride;
    for (uint32_t c = begin; c < end; ++c) out[c] = 0.0F;
    for (uint32_t k = 0; k < plan_.n_used; ++k) {
      const size_t at = size_t{row} * plan_.n_used + k;
      const uint32_t pair = plan_.pair_of[at];
      if (pair == kNoPair || (!stays_there_.empty() && stays_there_[pair])) continue;
      const float weight = plan_.weights[at];
      const float* y = s_.results + size_t{pair} * width;
      for (uint32_t c = begin; c < end; ++c) out[c] += weight * y[c];
    }
    if (rows_.shared != nullptr) {
      const float* shared = rows_.shared + size_t{row} * width;
      for (uint32_t c = begin; c < end; ++c) out[c] += shared[c];
    }
    if (rows_.residual == nullptr) continue;
    const float* residual = rows_.residual + size_t{row} * width;
    for (uint32_t c = begin; c < end; ++c) out[c] += residual[c];
  }
}

}  // namespace moestro
