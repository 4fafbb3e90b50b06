// SPDX-License-Identifier: MIT
// DeepSeek-V3.2: DeepSeek-V3 whose rows attend to the positions that an indexer chooses.
#include "model/families/families.h"

namespace moestro {

Family DeepSeek32() {
  Family family{
      .name = "deepseek32",
      .router = {.gating = Gating::kSigmoid,
                 .gating_key = Presence::kRequired,
                 .renormalise_by_key = true,
                 .has_groups = true},
      .latent = {.is_used = true, .keeps_magnitude = true, .indexers = Indexers::kInEvery},
      .feed_forward_length = FeedForwardLength::kDenseLayer,
      .shared_expert = SharedExpert::kCounted,
      .has_dense_layers = true,
      .has_next_token_layers = true,
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors(),
      .written = {.has_free_heads = true,
                  .can_be_tied = true,
                  .has_rope_length_key = true,
                  .has_groups = true,
                  .has_yarn = true,
                  .weights_scale = 2.5F}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireLatentAttention(layer);
  RequireIndexer(layer);
  layer.selection_b = Presence::kUsual;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

}  // namespace moestro
