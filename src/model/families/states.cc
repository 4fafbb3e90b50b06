// SPDX-License-Identifier: MIT
// Families with layers that have a state.
#include <algorithm>
#include <numeric>
#include <string_view>

#include "model/families/families.h"
#include "model/read_blocks.h"
#include "model/read_ngrams.h"

namespace moestro {

// Granite 3 and 4 with experts: embeddings, outputs of layers, logits and scores of attention are
// scaled; some models have a shared expert. In the hybrid models most layers are Mamba-2.

namespace {

Family Granite(std::string_view name) {
  Family family{
      .name = name,
      .attention = {.rope_pairs = RopePairs::kAdjacent},
      .router = {.renormalise = true, .has_groups = true, .scales_by_key = false},
      .shared_expert = SharedExpertKind::kOptional,
      .has_scales = true,
      .rotates_by_key = true,
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors(),
      .written = {.has_free_heads = true, .can_be_tied = true, .has_head_length_keys = true}};
  family.model_tensors.rope_freqs = Presence::kOptional;
  LayerRoles<Presence>& layer = family.layer_tensors;
  layer.shared_gate = layer.shared_up = layer.shared_down = Presence::kRequired;
  return family;
}

}  // namespace

Family GraniteMoe() { return Granite("granitemoe"); }

Family GraniteHybrid() {
  Family family = Granite("granitehybrid");
  family.states = {.mixer = StateMixer::kMamba2, .layers = StateLayers::kWithoutKvHeads};
  RequireMamba2(family.layer_tensors);
  return family;
}

// Nemotron 3: a layer is Mamba-2, attention without rotation, or experts, each alone. Experts have
// two matrices and a squared ReLU; those of the large models work in a smaller space.
Family NemotronHMoe() {
  Family family{
      .name = "nemotron_h_moe",
      .experts = {.activation = Activation::kReluSquared},
      .router = {.gating = Gating::kSigmoid, .renormalise_by_key = true, .has_groups = true},
      .states = {.mixer = StateMixer::kMamba2, .layers = StateLayers::kWithoutKvHeads},
      .feed_forward_length = FeedForwardLength::kUsedExperts,
      .shared_expert = SharedExpertKind::kOwnWidth,
      .has_lone_parts = true,
      .has_latent_experts = true,
      .has_next_token_layers = true,
      .has_other_epsilon_name = true,
      .rotates = false,
      .model_tensors = CommonModelTensors(),
      .layer_tensors = CommonLayerTensors(),
      .written = {.has_free_heads = true,
                  .can_be_tied = true,
                  .has_head_length_keys = true,
                  .weights_scale = 2.5F}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireMamba2(layer);
  layer.ffn_norm = Presence::kNone;
  layer.selection_b = Presence::kRequired;
  layer.latent_down = layer.latent_up = Presence::kRequired;
  layer.shared_up = layer.shared_down = Presence::kRequired;
  return family;
}

// LFM2 with experts: most layers are short convolutions, the others attention; a sigmoid router
// with a bias.
Family Lfm2Moe() {
  Family family{.name = "lfm2moe",
                .attention = {.qk_norm = QkNorm::kPerHead},
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kRequired,
                           .renormalise = true,
                           .has_groups = true,
                           .scales_by_key = false},
                .states = {.mixer = StateMixer::kShortConv, .layers = StateLayers::kWithoutKvHeads},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .has_dense_layers = true,
                .has_other_norm_name = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.can_be_tied = true}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  for (Presence* part : {&layer.short_in, &layer.short_conv, &layer.short_out}) {
    *part = Presence::kRequired;
  }
  layer.selection_b = Presence::kRequired;
  RequireDenseBlock(layer);
  return family;
}

// Qwen3-Next, Qwen3-Coder-Next: as Qwen3.5, with key heads shared by neighbours, and in older files
// with one matrix for all that a delta net projects.
Family Qwen3Next() {
  Family family{.name = "qwen3next",
                .attention = {.qk_norm = QkNorm::kPerHead, .output_gate = OutputGate::kWithQuery},
                .router = {.renormalise = true, .scales_by_key = false},
                .states = {.mixer = StateMixer::kDeltaNet, .sharing = HeadSharing::kConsecutive},
                .feed_forward_length = FeedForwardLength::kUsedExperts,
                .shared_expert = SharedExpertKind::kOwnWidth,
                .has_next_token_layers = true,
                .can_predict = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_free_heads = true,
                            .can_be_tied = true,
                            .has_head_length_keys = true,
                            .has_rope_length_key = true,
                            .has_other_names = true,
                            .rotates_quarter = true}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  RequireDeltaNet(layer);
  // ReadWeights() demands these two tensors, or one for both.
  layer.delta_qkv = Presence::kUsual;
  layer.delta_gate = Presence::kUsual;
  layer.state_in = Presence::kOptional;
  layer.state_beta_alpha = Presence::kRequired;
  layer.shared_router = Presence::kRequired;
  RequireSharedExpert(layer);
  RequirePrediction(layer);
  return family;
}

// Qwen3.5 and 3.6 MoE: three layers of four are gated delta nets, the fourth is attention whose
// values a gate weighs; a shared expert with a gate of its own.

namespace {

// Pairs of dimensions are dealt out in turn to the positions in a text, in an image's rows and in
// its columns. In a text all three are equal, so that every pair is rotated alike if each has been
// dealt out.
Status CheckSections(const MetaKeys& keys, ModelSpec& spec) {
  constexpr std::string_view kKey = "rope.dimension_sections";
  if (!keys.Has(kKey)) {
    return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing; convert the model again",
                keys.path(), keys.Full(kKey));
  }
  const AttentionSpec* const attention = spec.first_rotated();
  if (attention == nullptr) return {};
  TRY(const auto sections, keys.Counts(kKey, {0, 4096}, 4, 4));
  const uint32_t sum = std::accumulate(sections.begin(), sections.end(), 0U);
  bool covers_all = sum > 0;
  for (uint32_t p = 0; p < std::min(sum, attention->rope->n_dims / 2); ++p) {
    covers_all = covers_all && p < 3 * sections[p % 3];
  }
  if (covers_all) return {};
  return Fail(Errc::kUnsupported, "{}: {} leaves pairs of dimensions without a position",
              keys.path(), keys.Full(kKey));
}

}  // namespace

Family Qwen35Moe() {
  Family family{.name = "qwen35moe",
                .attention = {.qk_norm = QkNorm::kPerHead, .output_gate = OutputGate::kWithQuery},
                .router = {.renormalise = true, .scales_by_key = false},
                .states = {.mixer = StateMixer::kDeltaNet, .sharing = HeadSharing::kInTurn},
                .feed_forward_length = FeedForwardLength::kUsedExperts,
                .shared_expert = SharedExpertKind::kOwnWidth,
                .has_next_token_layers = true,
                .can_predict = true,
                .may_hold_vision = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .read = CheckSections,
                .written = {.has_free_heads = true,
                            .can_be_tied = true,
                            .has_head_length_keys = true,
                            .has_rope_length_key = true,
                            .has_rope_sections = true,
                            .has_other_names = true,
                            .rotates_quarter = true}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  RequireDeltaNet(layer);
  layer.state_alpha = Presence::kRequired;
  layer.state_beta = Presence::kRequired;
  layer.shared_router = Presence::kRequired;
  RequireSharedExpert(layer);
  RequirePrediction(layer);
  return family;
}

// Qwen3.8-Flash-Next: delta nets and attention as Qwen3.5's, with sigmoid gates of delta nets, four
// residual streams instead of norms before and behind a layer's halves, attention to blocks of
// positions that an indexer chooses, and a table of n-grams that one layer takes in.

namespace {

Status ReadFlashNext(const MetaKeys& keys, ModelSpec& spec) {
  TRY_STATUS(CheckSections(keys, spec));
  TRY_STATUS(ReadMeanBlocks(keys, spec));
  return ReadNgrams(keys, spec);
}

}  // namespace

Family Qwen4Exp() {
  Family family{.name = "qwen4exp",
                .attention = {.qk_norm = QkNorm::kPerHead, .output_gate = OutputGate::kWithQuery},
                .router = {.renormalise = true},
                .states = {.mixer = StateMixer::kDeltaNet,
                           .sharing = HeadSharing::kInTurn,
                           .has_sigmoid_gates = true},
                .feed_forward_length = FeedForwardLength::kUsedExperts,
                .shared_expert = SharedExpertKind::kOwnWidth,
                .has_next_token_layers = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .streams = StreamMixing::kLowRank,
                .blocks = BlockIndexers::kOfMeans,
                .has_ngrams = true,
                .read = ReadFlashNext,
                .written = {.has_free_heads = true,
                            .can_be_tied = true,
                            .has_head_length_keys = true,
                            .has_rope_length_key = true,
                            .has_rope_sections = true,
                            .rotates_quarter = true}};
  ModelRoles<Presence>& model = family.model_tensors;
  model.output_norm = Presence::kNone;  // the head's mix of streams norms them
  for (Presence* part :
       {&model.head_streams_norm, &model.head_streams_down, &model.head_streams_up}) {
    *part = Presence::kRequired;
  }
  model.ngram_table = Presence::kUsual;
  LayerRoles<Presence>& layer = family.layer_tensors;
  layer.attn_norm = layer.ffn_norm = Presence::kNone;
  for (Presence* part :
       {&layer.mixer_streams_norm, &layer.mixer_streams_down, &layer.mixer_streams_up,
        &layer.mixer_streams_inject, &layer.ffn_streams_norm, &layer.ffn_streams_down,
        &layer.ffn_streams_up, &layer.ffn_streams_inject, &layer.block_q, &layer.block_k,
        &layer.block_q_norm, &layer.indexer_k_norm, &layer.ngram_key, &layer.ngram_value,
        &layer.ngram_key_norm, &layer.ngram_query_norm, &layer.ngram_conv_norm,
        &layer.ngram_conv}) {
    *part = Presence::kRequired;  // required in layers with that part
  }
  RequireQkNorms(layer);
  RequireDeltaNet(layer);
  layer.state_alpha = Presence::kRequired;
  layer.state_beta = Presence::kRequired;
  layer.shared_router = Presence::kRequired;
  RequireSharedExpert(layer);
  return family;
}

}  // namespace moestro
