// SPDX-License-Identifier: MIT
// Families with attention to the last positions and to pools of all earlier ones.
#include "model/families/families.h"

namespace moestro {

// DeepSeek-V4: keys of the last positions and, in most layers, of pools of four positions, which an
// indexer chooses, or of 128; a router by roots of softplus with a bias, and in the first layers
// experts that follow from the token; limits; four residual streams, mixed for the head, too.
Family DeepSeek4() {
  Family family{.name = "deepseek4",
                .attention = {.rope_pairs = RopePairs::kAdjacent},
                .experts = {.activation = Activation::kSwigluGate},
                .router = {.gating = Gating::kSoftplusRoot,
                           .gating_key = Presence::kRequired,
                           .renormalise_by_key = true},
                .has_pooled_attention = true,
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .shared_expert = SharedExpertKind::kCounted,
                .has_token_experts = true,
                .limits = Limits::kOfAllByFirst,
                .has_next_token_layers = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = {.attn_norm = Presence::kRequired,
                                  .attn_sinks = Presence::kRequired,
                                  .ffn_norm = Presence::kRequired,
                                  .router = Presence::kRequired},
                .streams = StreamMixing::kSinkhorn,
                .mixes_head = true,
                .written = {.has_free_heads = true,
                            .has_head_length_keys = true,
                            .has_rope_length_key = true,
                            .has_yarn = true,
                            .weights_scale = 1.5F}};
  for (Presence* part :
       {&family.model_tensors.output, &family.model_tensors.head_streams,
        &family.model_tensors.head_streams_b, &family.model_tensors.head_streams_scale}) {
    *part = Presence::kRequired;
  }
  LayerRoles<Presence>& layer = family.layer_tensors;
  for (Presence* part :
       {&layer.latent_q_a, &layer.latent_q_norm, &layer.latent_q_b, &layer.pooled_kv,
        &layer.latent_kv_norm, &layer.pooled_out_a, &layer.pooled_out_b, &layer.pool_kv,
        &layer.pool_gate, &layer.pool_b, &layer.pool_norm, &layer.indexer_q, &layer.indexer_weights,
        &layer.indexer_pool_kv, &layer.indexer_pool_gate, &layer.indexer_pool_b,
        &layer.indexer_pool_norm, &layer.token_experts, &layer.selection_b}) {
    *part = Presence::kRequired;  // in layers with that part
  }
  RequireSharedExpert(layer);
  RequireStreams(layer);
  return family;
}

}  // namespace moestro
