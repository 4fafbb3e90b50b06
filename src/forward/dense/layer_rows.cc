// SPDX-License-Identifier: MIT
#include "forward/dense/layer_rows.h"

#include <ggml.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/number.h"
#include "base/text.h"
#include "compute/backend_calls.h"

namespace moestro {

void EmbedRows(const ggml_tensor& table, float scale, std::span<const StepRow> rows, float* out) {
  const auto* values = static_cast<const std::byte*>(table.data);
  const ggml_to_float_t to_float = ggml_get_type_traits(table.type)->to_float;
  for (const StepRow& row : rows) {
    const std::byte* from = values + static_cast<size_t>(row.token) * table.nb[1];
    if (table.type == GGML_TYPE_F32) {
      std::copy_n(reinterpret_cast<const float*>(from), table.ne[0], out);
    } else {
      to_float(from, out, table.ne[0]);
    }
    if (scale != 1.0F) {
      for (int64_t i = 0; i < table.ne[0]; ++i) out[i] *= scale;
    }
    out += table.ne[0];
  }
}

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
    together(w.predict_join);
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
    together(w.mixer_streams_down, w.mixer_streams_inject);
    together(w.ngram_key, w.ngram_value);
  }
  return most;
}

}  // namespace

uint32_t PieceRows(const ModelTensors& tensors, uint32_t threads) {
  const uint64_t rows = kMostMultiplied * threads / LargestProduct(tensors);
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(AlignDown(rows, kFewestRows), kFewestRows, kMostPieceRows));
}

namespace {

// Infinity as an integer. Magnitudes from here on are infinite or NaN.
constexpr int32_t kInfinity = 0x7f800000;

// Values that are compared at once: enough for the compiler to use vectors.
constexpr size_t kTogether = 64;

int32_t Magnitude(float value) { return std::bit_cast<int32_t>(value) & 0x7fffffff; }

bool AreFinite(std::span<const float> values) {
  std::array<int32_t, kTogether> largest{};
  size_t at = 0;
  for (; at + kTogether <= values.size(); at += kTogether) {
    for (size_t i = 0; i < kTogether; ++i) {
      largest[i] = std::max(largest[i], Magnitude(values[at + i]));
    }
  }
  for (; at < values.size(); ++at) largest[0] = std::max(largest[0], Magnitude(values[at]));
  return std::ranges::max(largest) < kInfinity;
}

}  // namespace

std::optional<size_t> FirstRowNotFinite(std::span<const float> values, size_t width) {
  if (AreFinite(values)) return std::nullopt;
  for (size_t row = 0; row * width < values.size(); ++row) {
    if (!AreFinite(values.subspan(row * width, width))) return row;
  }
  return std::nullopt;
}

Status CheckLayer(const ModelSpec& spec, const StepBuffers& buffers, LayerId layer, size_t n_rows) {
  const bool has_router = spec.has_experts(layer.value);
  const bool is_there = buffers.is_on_device();
  if (!has_router && is_there) return {};
  const std::span<const float> hidden(buffers.hidden(), n_rows * spec.n_embd);
  const auto row = has_router ? FirstRowNotFinite({buffers.router(), n_rows * spec.router.n_expert},
                                                  spec.router.n_expert)
                              : FirstRowNotFinite(hidden, spec.n_embd);
  if (!row) return {};
  // With a router, hidden is still the layer's input.
  const bool came_in = has_router && !is_there && FirstRowNotFinite(hidden, spec.n_embd);
  // Without a router, the layer's result has overwritten its input.
  const bool may_be_before = !has_router && layer.value > 0 && spec.has_experts(layer.value - 1U);
  const std::string where =
      may_be_before     ? Format("layer {}, or layer {}'s experts,", layer.value, layer.value - 1)
      : !came_in        ? Format("layer {}", layer.value)
      : layer.value > 0 ? Format("layer {}'s experts", layer.value - 1)
                        : "the embedding";
  return Fail(Errc::kInvalidFile,
              "position {}: {} computed NaN or infinity; the weights are damaged, or their values "
              "too large for this type of keys and values: fetch the model again",
              buffers.positions()[*row], where);
}

Status CheckLogits(const ModelSpec& spec, const StepBuffers& buffers, StepRows rows) {
  const auto row =
      FirstRowNotFinite({buffers.logits(), size_t{rows.count} * spec.n_vocab}, spec.n_vocab);
  if (!row) return {};
  return Fail(
      Errc::kInvalidFile,
      "position {}: the last layer's experts or the output matrix computed NaN or infinity; "
      "the weights are damaged: fetch the model again",
      buffers.positions()[rows.first + *row]);
}

Status CheckComputes(const ComputeDevice* device, ggml_cgraph* graph, KvType type) {
  for (int i = 0; device != nullptr && i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    if (Computes(device->handle(), node)) continue;
    const bool is_of_cache = node->op == GGML_OP_SET_ROWS || node->op == GGML_OP_FLASH_ATTN_EXT;
    return Fail(Errc::kDevice, "{} does not compute {} of this model{}{}", device->info().name,
                ggml_op_name(node->op), is_of_cache ? " with keys and values in " : "",
                is_of_cache ? NameOf(type) : "");
  }
  return {};
}

// Adds the reads of those of the rows that are not in memory.
void FetchedRows::Add(Which which, uint64_t bytes, Border& border) {
  if (are_here_ == Which::kNone && which != Which::kNone) {
    border.reads.push_back(buffers_->ToMemory(StepBuffers::kFfnIn, bytes));
  }
  if (are_here_ != Which::kAll && which == Which::kAll) {
    border.reads.push_back(buffers_->ToMemory(StepBuffers::kResidual, bytes));
    if (has_shared_) border.reads.push_back(buffers_->ToMemory(StepBuffers::kShared, bytes));
  }
  are_here_ = std::max(are_here_, which);
}

void FetchedRows::AddLikely(size_t layer, uint64_t bytes, Border& border) {
  // Rows beyond these take longer to copy than a wait.
  constexpr uint64_t kFew = uint64_t{128} << 10;
  layer_ = layer;
  are_here_ = Which::kNone;
  Likely& its = likely_[layer];
  if (bytes > kFew || its.steps == 0) return;
  --its.steps;
  Add(its.which, bytes, border);
}

Status FetchedRows::Fetch(Which which, uint64_t bytes, DeviceLink& link) {
  Likely& its = likely_[layer_];
  its = {.which = its.steps > 0 ? std::max(its.which, which) : which, .steps = kSteps};
  Border border;
  Add(which, bytes, border);
  return border.reads.empty() ? Status() : link.Cross(border);
}

}  // namespace moestro
