// SPDX-License-Identifier: MIT
#include "forward/dense/layer_check.h"

#include <optional>
#include <span>
#include <string>

#include "base/format.h"
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
  // With a router, hidden is still what came into the layer.
  const bool came_in = has_router && !is_there && FirstRowNotFinite(hidden, spec.n_embd);
  // Without a router what came in has been overwritten.
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

}  // namespace moestro
