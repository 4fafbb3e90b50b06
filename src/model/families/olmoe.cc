// SPDX-License-Identifier: MIT
// OLMoE: q and k are normalised as whole vectors before they are cut into heads, and may be
// clamped before that.
#include "model/families/families.h"

namespace moestro {
namespace {

Status ReadClamp(const MetaKeys& keys, ModelSpec& spec) {
  TRY(const auto clamp, keys.FindFactor("attention.clamp_kqv"));
  for (LayerSpec& layer : spec.layers) {
    std::get<AttentionSpec>(layer.mixer).clamp_kqv = clamp.value_or(0.0F);
  }
  return {};
}

}  // namespace

Family Olmoe() {
  Family family{.name = "olmoe",
                .attention = {.qk_norm = QkNorm::kWholeVector},
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .read = ReadClamp,
                .written = {.shares_kv_heads = false}};
  RequireQkNorms(family.layer_tensors);
  return family;
}

}  // namespace moestro
