// SPDX-License-Identifier: MIT
#include "device/kernels/generic.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace moestro {
namespace {

constexpr size_t kLine = 64;
// Far enough for DRAM latency at one core's share of the bandwidth, near enough for L1.
constexpr size_t kPrefetchDistance = 6144;

void PrefetchRange(const std::byte* from, const std::byte* to) {
  for (; from < to; from += kLine) __builtin_prefetch(from);
}

void QuantiseWithGgml(const ExpertKernel& self, const float* from, std::byte* to, int64_t n) {
  self.from_float(from, to, n);
}

void CopyFloats(const ExpertKernel&, const float* from, std::byte* to, int64_t n) {
  std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

// Multiplies one row with all tokens before the next row, so that a row comes from DRAM once. The
// prefetch runs a fixed distance ahead, because ggml's dot products prefetch nothing beyond the row
// that they read.
void MultiplyWithGgml(const ExpertKernel& self, const ExpertKernel::Call& call) {
  const std::byte* row = call.rows;
  const std::byte* const end = row + static_cast<size_t>(call.n_rows) * call.row_bytes;
  const std::byte* asked = row;
  for (int64_t r = 0; r < call.n_rows; ++r, row += call.row_bytes) {
    const std::byte* ask = std::min(row + call.row_bytes + kPrefetchDistance, end);
    PrefetchRange(asked, ask);
    asked = std::max(asked, ask);
    if (r + 1 == call.n_rows) {
      PrefetchRange(call.next, call.next + std::min(call.next_bytes, kPrefetchDistance));
    }
    for (int64_t t = 0; t < call.n_tokens; ++t) {
      self.vec_dot(static_cast<int>(call.n_in), call.out[t] + r, 0, row, 0, call.activations[t], 0,
                   1);
    }
  }
}

constexpr int64_t kChunk = 256;    // a multiple of every type's block
constexpr int64_t kTokenTile = 8;  // tokens that share a dequantised chunk

// Computes out[t][r] of one row for at most kTokenTile tokens from `first` on.
void DequantisedRow(const ExpertKernel& self, const ExpertKernel::Call& call, int64_t r,
                    int64_t first) {
  const ggml_type_traits& type = *ggml_get_type_traits(self.weight_type);
  const std::byte* row = call.rows + static_cast<size_t>(r) * call.row_bytes;
  const int64_t n_tokens = std::min(kTokenTile, call.n_tokens - first);
  std::array<float, kChunk> weights;
  std::array<double, kTokenTile> sums{};
  for (int64_t at = 0; at < call.n_in; at += kChunk) {
    const int64_t n = std::min(kChunk, call.n_in - at);
    if (type.to_float != nullptr) {
      type.to_float(row + ggml_row_size(self.weight_type, at), weights.data(), n);
    } else {
      std::memcpy(weights.data(), row + static_cast<size_t>(at) * sizeof(float),
                  static_cast<size_t>(n) * sizeof(float));
    }
    for (int64_t t = 0; t < n_tokens; ++t) {
      const auto* x = reinterpret_cast<const float*>(call.activations[first + t]) + at;
      double sum = 0.0;
      for (int64_t i = 0; i < n; ++i) sum += double{weights[static_cast<size_t>(i)]} * x[i];
      sums[static_cast<size_t>(t)] += sum;
    }
  }
  for (int64_t t = 0; t < n_tokens; ++t) {
    call.out[first + t][r] = static_cast<float>(sums[static_cast<size_t>(t)]);
  }
}

void MultiplyDequantised(const ExpertKernel& self, const ExpertKernel::Call& call) {
  for (int64_t r = 0; r < call.n_rows; ++r) {
    for (int64_t t = 0; t < call.n_tokens; t += kTokenTile) DequantisedRow(self, call, r, t);
  }
}

}  // namespace

std::optional<ExpertKernel> GenericKernel(ggml_type type, const CpuTraits& traits) {
  const ggml_type_traits_cpu* weights = traits.Of(type);
  if (weights == nullptr || weights->vec_dot == nullptr) return std::nullopt;
  const ggml_type activation_type = weights->vec_dot_type;
  const ggml_type_traits_cpu* activations = traits.Of(activation_type);
  const bool floats = activation_type == GGML_TYPE_F32;
  if (!floats && activations->from_float == nullptr) return std::nullopt;
  ExpertKernel kernel;
  kernel.weight_type = type;
  kernel.activation_type = activation_type;
  kernel.name = "ggml";
  kernel.quantise = floats ? CopyFloats : QuantiseWithGgml;
  kernel.multiply = MultiplyWithGgml;
  kernel.activation_block = ggml_blck_size(activation_type);
  kernel.activation_block_bytes = ggml_type_size(activation_type);
  kernel.from_float = activations->from_float;
  kernel.vec_dot = weights->vec_dot;
  return kernel;
}

std::optional<ExpertKernel> DequantisingKernel(ggml_type type) {
  const bool floats = type == GGML_TYPE_F32;
  if (!floats && ggml_get_type_traits(type)->to_float == nullptr) return std::nullopt;
  ExpertKernel kernel;
  kernel.weight_type = type;
  kernel.activation_type = GGML_TYPE_F32;
  kernel.name = "dequantise";
  kernel.quantise = CopyFloats;
  kernel.multiply = MultiplyDequantised;
  kernel.activation_block_bytes = sizeof(float);
  return kernel;
}

}  // namespace moestro
