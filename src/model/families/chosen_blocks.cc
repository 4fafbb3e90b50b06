// SPDX-License-Identifier: MIT
// Families whose heads attend to blocks of positions that each group of heads chooses.
#include "model/families/families.h"
#include "model/read_blocks.h"

namespace moestro {

// MiniMax-M3: layers without experts, which attend to all positions, and behind them layers whose
// heads choose blocks. q and k are normalised per head, half of each head is rotated, and a sigmoid
// router has a bias.
Family MiniMaxM3() {
  Family family{.name = "minimax-m3",
                .attention = {.qk_norm = QkNorm::kPerHead},
                .experts = {.activation = Activation::kSwigluOai},
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kRequired,
                           .renormalise_by_key = true,
                           .has_groups = true},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .shared_expert = SharedExpertKind::kCounted,
                .has_dense_layers = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .blocks = BlockIndexers::kOfHeads,
                .read = ReadBlocksOfHeads,
                .written = {.has_free_heads = true,
                            .has_head_length_keys = true,
                            .has_rope_length_key = true,
                            .rotates_half = true,
                            .weights_scale = 2.0F}};
  family.model_tensors.output = Presence::kRequired;
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  for (Presence* part :
       {&layer.block_q, &layer.block_k, &layer.block_q_norm, &layer.indexer_k_norm}) {
    *part = Presence::kRequired;  // required in layers with that part
  }
  layer.selection_b = Presence::kRequired;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

}  // namespace moestro
