// SPDX-License-Identifier: MIT
#include "forward/dense/piece_rows.h"

#include <ggml.h>

#include <algorithm>

#include "base/bytes.h"

namespace moestro {
namespace {

// Multiplications of the largest product of a graph for each thread: some 20 ms with our kernels,
// 50 with ggml's slowest. A stop ends a graph between products, not within one.
constexpr uint64_t kMostMultiplied = 750'000'000;
// More rows than these make no product faster, and take more memory.
constexpr uint32_t kMostPieceRows = 256;
constexpr uint32_t kFewestRows = 32;  // fewer rows would wait for weights

// Weights of the largest product: the most that one node multiplies a row with, over all layers.
uint64_t LargestProduct(const ModelTensors& tensors) {
  uint64_t most = 1;
  for (const LayerTensors& w : tensors.layers) {
    const auto together = [&](auto... matrices) {
      const auto elements = [](const ggml_tensor* t) {
        return t != nullptr ? static_cast<uint64_t>(ggml_nelements(t)) : 0;
      };
      most = std::max(most, (elements(matrices) + ...));
    };
    together(w.attn_qkv);
    together(w.attn_q, w.attn_k, w.attn_v);
    together(w.attn_out);
    together(w.latent_q_a);
    together(w.latent_q_b);
    together(w.indexer_q);
    together(w.delta_qkv, w.delta_gate, w.state_in);
    together(w.short_in);
    together(w.state_out);
    together(w.latent_down);
    together(w.latent_up);
    together(w.shared_gate, w.shared_up);
    together(w.dense_gate, w.dense_up);
    together(w.dense_down);
  }
  return most;
}

}  // namespace

uint32_t PieceRows(const ModelTensors& tensors, uint32_t threads) {
  const uint64_t rows = kMostMultiplied * threads / LargestProduct(tensors);
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(AlignDown(rows, kFewestRows), kFewestRows, kMostPieceRows));
}

}  // namespace moestro
