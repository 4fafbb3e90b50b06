// SPDX-License-Identifier: MIT
#include "forward/dense/layer_check.h"

#include <optional>
#include <span>
#include <string>

#include "base/format.h"
#include "device/backend_calls.h"
#include "forward/dense/finite.h"

namespace moestro {

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

}  // namespace moestro
