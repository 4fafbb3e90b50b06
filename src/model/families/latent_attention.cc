// SPDX-License-Identifier: MIT
// Families with latent attention.
#include "model/families/families.h"

namespace moestro {

// DeepSeek-V2, V3, R1 and V3.1, Kimi K2, GLM-4.7-Flash: latent attention, leading layers with a
// dense block, counted shared experts; V3 and its successors have a sigmoid router with a bias and
// groups.

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
      .shared_expert = SharedExpertKind::kCounted,
      .has_dense_layers = true,
      .has_next_token_layers = true,
      .can_predict = true,
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
  RequirePrediction(layer);
  return family;
}

// DeepSeek-V3.2: DeepSeek-V3 whose rows attend to the positions that an indexer chooses.
Family DeepSeek32() {
  Family family{
      .name = "deepseek32",
      .router = {.gating = Gating::kSigmoid,
                 .gating_key = Presence::kRequired,
                 .renormalise_by_key = true,
                 .has_groups = true},
      .latent = {.is_used = true, .keeps_magnitude = true, .indexers = Indexers::kInEvery},
      .feed_forward_length = FeedForwardLength::kDenseLayer,
      .shared_expert = SharedExpertKind::kCounted,
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

// GLM-5: like DeepSeek-V3.2, but an indexer rotates neighbouring pairs; from 5.2 on some layers use
// the positions that a layer before them chose.
Family GlmDsa() {
  Family family = DeepSeek32();
  family.name = "glm-dsa";
  family.router.gating_key = Presence::kOptional;
  family.latent.has_multiplier = false;
  family.latent.indexers = Indexers::kByTypes;
  family.latent.indexer_pairs = RopePairs::kAdjacent;
  family.written.has_yarn = false;
  return family;
}

// Kimi Linear: three layers of four are delta nets in which each value of a key decays on its own,
// the fourth is latent attention without rotation; a sigmoid router with a bias.
Family KimiLinear() {
  Family family{.name = "kimi-linear",
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kRequired,
                           .renormalise = true},
                .latent = {.is_used = true, .rotates = false},
                .states = {.mixer = StateMixer::kKimiDelta, .layers = StateLayers::kWithoutKvHeads},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .shared_expert = SharedExpertKind::kCounted,
                .has_dense_layers = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_free_heads = true,
                            .has_rope_length_key = true,
                            .has_whole_queries = true,
                            .weights_scale = 2.446F}};
  family.model_tensors.output = Presence::kRequired;
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireLatentAttention(layer);
  RequireKimiDelta(layer);
  layer.selection_b = Presence::kRequired;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

// Ling 3: delta nets as Kimi Linear's, but decays have a lower bound and one matrix each gives
// decays and gates; latent attention is rotated, and each head has a gate; a sigmoid router with
// groups and a bias. Gates and up projections of late layers have limits.
Family BailingMoe3() {
  Family family{.name = "bailingmoe3",
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kRequired,
                           .renormalise_by_key = true,
                           .has_groups = true},
                .latent = {.is_used = true,
                           .has_multiplier = false,
                           .scales_scores = false,
                           .has_gates = true},
                .states = {.mixer = StateMixer::kKimiDelta,
                           .layers = StateLayers::kWithoutKvHeads,
                           .has_whole_gates = true,
                           .has_decay_bound = true},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .shared_expert = SharedExpertKind::kLikeExpert,
                .has_dense_layers = true,
                .limits = Limits::kOfEach,
                .has_next_token_layers = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .written = {.has_free_heads = true,
                            .can_be_tied = true,
                            .has_rope_length_key = true,
                            .has_shared_count_key = true,
                            .has_groups = true,
                            .has_yarn = true,
                            .keeps_heads_apart = true,
                            .weights_scale = 2.5F}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireLatentAttention(layer);
  layer.latent_kv_b = Presence::kNone;
  layer.attn_gate = Presence::kRequired;
  RequireKimiDelta(layer);
  layer.selection_b = Presence::kRequired;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  return family;
}

// GLM-5.3-Flash: Kimi Linear's delta nets, with a lower bound of decays; latent attention without
// turned values, whose indexers choose pools of positions; a sigmoid router with a bias, limits,
// and four residual streams.
Family Glm5Next() {
  Family family{.name = "glm5-next",
                .experts = {.activation = Activation::kSwigluGate},
                .router = {.gating = Gating::kSigmoid,
                           .gating_key = Presence::kOptional,
                           .renormalise_by_key = true,
                           .has_groups = true},
                .latent = {.is_used = true,
                           .rotates = false,
                           .has_turned = false,
                           .indexers = Indexers::kPools},
                .states = {.mixer = StateMixer::kKimiDelta,
                           .layers = StateLayers::kWithoutKvHeads,
                           .has_decay_bound = true,
                           .has_negative_rates = true,
                           .key_eps = 1e-6F},
                .feed_forward_length = FeedForwardLength::kDenseLayer,
                .shared_expert = SharedExpertKind::kCounted,
                .has_dense_layers = true,
                .limits = Limits::kOfAllByFirst,
                .has_next_token_layers = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .streams = StreamMixing::kSinkhorn,
                .written = {.has_free_heads = true,
                            .has_rope_length_key = true,
                            .keeps_small_matrices = true,
                            .weights_scale = 2.5F}};
  family.model_tensors.output = Presence::kRequired;
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireLatentAttention(layer);
  RequireIndexer(layer);
  layer.indexer_pool_gate = layer.indexer_pool_b = Presence::kRequired;
  RequireKimiDelta(layer);
  layer.state_a_column = Presence::kNone;
  layer.state_a = Presence::kRequired;
  layer.selection_b = Presence::kRequired;
  RequireSharedExpert(layer);
  RequireDenseBlock(layer);
  RequireStreams(layer);
  return family;
}

}  // namespace moestro
