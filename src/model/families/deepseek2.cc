// SPDX-License-Identifier: MIT
// DeepSeek-V2, V3, R1 and V3.1, Kimi K2, GLM-4.7-Flash: latent attention, leading layers with a
// dense block, counted shared experts; V3 and its successors have a sigmoid router with a bias and
// groups.
#include "model/families/families.h"

namespace moestro {
namespace {

Status ReadDeepSeek2(const MetaKeys& keys, ModelSpec& spec) {
  TRY(const auto temperature, keys.FindFactor("attention.temperature_scale"));
  if (temperature.value_or(0.0F) != 0.0F) {
    return Fail(Errc::kUnsupported, "{}: {} is {}: scores scaled by position are not supported",
                keys.path(), keys.Full("attention.temperature_scale"), *temperature);
  }
  // GLM-4.7-Flash has a sigmoid router without saying so.
  TRY(const auto gating, keys.file().FindUniformUint(keys.Full("expert_gating_func")));
  const bool is_flash = (spec.n_layer() == 47 || spec.n_layer() == 48) && spec.n_vocab == 154880;
  if (gating.value_or(0) == 0 && is_flash) spec.router.gating = Gating::kSigmoid;
  return {};
}

}  // namespace

Family DeepSeek2() {
  Family family{
      .name = "deepseek2",
      .router = {.gating_key = Presence::kOptional, .renormalise_by_key = true, .has_groups = true},
      .latent = {.is_used = true},
      .feed_forward_length = FeedForwardLength::kDenseLayer,
      .shared_expert = SharedExpert::kCounted,
      .has_dense_layers = true,
      .has_next_token_layers = true,
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors(),
      .read = ReadDeepSeek2,
      .written = {.has_free_heads = true,
                  .can_be_tied = true,
                  .has_rope_length_key = true,
                  .has_yarn = true}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireLatentAttention(layer);
  layer.selection_b = Presence::kOptional;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

}  // namespace moestro
