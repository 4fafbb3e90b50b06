// SPDX-License-Identifier: MIT
// The supported families of models, each a value. A source beside this header holds those with the
// same kind of layers: full_attention.cc, windows.cc, chosen_blocks.cc, latent_attention.cc,
// pooled_attention.cc, states.cc, switch.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/model_spec.h"
#include "core/tensor_roles.h"
#include "model/file_checks.h"

namespace moestro {

// A family of models (a value of general.architecture) as one value: its metadata, its tensors, and
// the computation of its layers: a function in one of the sources, and a line in families.cc. A key
// or tensor that a family does not declare is refused when a file has it.

enum class Presence : uint8_t {
  kNone,
  kOptional,
  kUsual,  // optional, and stock files have it
  kRequired,
};

struct RouterRules {
  Gating gating = Gating::kSoftmax;
  // expert_gating_func may name another; kRequired: a file without that key is refused.
  Presence gating_key = Presence::kNone;
  bool renormalise = false;         // the K weights are divided by their sum
  bool renormalise_by_key = false;  // expert_weights_norm decides instead
  bool has_groups = false;          // expert_group_count may be more than 1
  bool scales_by_key = true;        // expert_weights_scale counts, else the key is not read
};

// Layers with a window: attention.sliding_window holds the number of last positions that they
// attend to, attention.sliding_window_pattern may hold another period or a choice for each layer.
struct WindowRules {
  // In each period of layers the last one attends to all positions; 0: no windows.
  uint32_t period = 0;
  bool is_first = false;         // the first layer of each period does so instead
  bool is_optional = false;      // a file without attention.sliding_window has no windows
  bool rotates_all = true;       // false: only layers with a window are rotated
  uint32_t unrotated_every = 0;  // the last of each so many layers is not rotated; 0: all are
  // Layers with a window are rotated without scaling and factors, rope.dimension_count_swa
  // dimensions.
  bool rotates_plainly = false;
  bool has_own_heads = false;  // heads of layers with a window are attention.key_length_swa wide
  // For layers with a window without rope.freq_base_swa; 0: the other layers' base.
  float base = 0.0F;
  bool keeps_factor = false;  // rope.scaling.attn_factor counts in layers with a window, too
};

// Whether positions are chosen: attention.indexer.*.
enum class Indexers : uint8_t {
  kNone,
  kInEvery,
  kByTypes,  // attention.indexer.types; without the key every layer has one or, in models of long
             // contexts, some layers share one
  kPools,  // of attention.indexer.kpool positions, attention.indexer.types; without that key every
           // layer has one
};

// Blocks of positions that an indexer of attention with heads chooses: attention.indexer.*.
enum class BlockIndexers : uint8_t {
  kNone,
  kOfMeans,  // attention.compress_ratios
  kOfHeads,  // attention.indexer.block_size and local_blocks, in layers with experts
};

// Attention is latent attention: attention.kv_lora_rank, q_lora_rank, key_length_mla.
struct LatentRules {
  bool is_used = false;
  RopePairs rope_pairs = RopePairs::kAdjacent;
  bool rotates = true;         // else rope.dimension_count values of a key are only kept apart
  bool has_turned = true;      // else rope.dimension_count is 0
  bool has_multiplier = true;  // rope.scaling.yarn_log_multiplier counts
  // YaRN makes rotated values larger. True: the multiplier sets how much of that they keep; false:
  // they keep nothing of it (without a multiplier all, either way).
  bool keeps_magnitude = false;
  bool scales_scores = true;  // YaRN's magnitude counts for values that are not rotated, too
  bool has_gates = false;     // attn_gate has a gate for each head
  Indexers indexers = Indexers::kNone;
  RopePairs indexer_pairs = RopePairs::kHalves;
};

enum class StateMixer : uint8_t {
  kNone,
  kDeltaNet,   // ssm.*
  kKimiDelta,  // kda.head_dim, as many heads as attention has
  kMamba2,     // ssm.*
  kShortConv,  // shortconv.l_cache
};

// Rules for the layers that have a state instead of attention.
enum class StateLayers : uint8_t {
  kByInterval,      // attention.recurrent_layers, or else all but each full_attention_interval-th
  kWithoutKvHeads,  // layers with attention.head_count_kv of 0
};

struct StateRules {
  StateMixer mixer = StateMixer::kNone;
  StateLayers layers = StateLayers::kByInterval;
  HeadSharing sharing = HeadSharing::kConsecutive;
  bool has_whole_gates = false;    // one matrix each gives kKimiDelta's decays and gates, else two
  bool has_decay_bound = false;    // kda.gate_lower_bound counts
  bool has_sigmoid_gates = false;  // of kDeltaNet, else silu
  // Rates of decays with a bound are below 0 in files, as they are without a bound, and a file may
  // lack the bound.
  bool has_negative_rates = false;
  float key_eps = 0.0F;  // of the norm of kKimiDelta's keys and queries; 0: the model's
};

// Meaning of swiglu_clamp_exp and swiglu_clamp_shexp, limits of gates and up projections.
enum class Limits : uint8_t {
  kNone,
  kOfEach,        // of routed experts, and of the shared expert and dense blocks
  kOfAllByFirst,  // the same, but without the second key the first serves for all
};

// Meaning of the key feed_forward_length.
enum class FeedForwardLength : uint8_t {
  kOneExpert,    // an expert's width
  kUsedExperts,  // all K experts of a token together; expert_feed_forward_length comes first
  kDenseLayer,   // a layer without experts; expert_feed_forward_length is an expert's width
};

enum class SharedExpertKind : uint8_t {
  kNone,
  kOwnWidth,    // expert_shared_feed_forward_length, or else feed_forward_length
  kOptional,    // expert_shared_feed_forward_length; without that key the model has none
  kLikeExpert,  // expert_shared_feed_forward_length, or else as wide as an expert
  kCounted,     // expert_shared_count experts, side by side in one
};

// Use of the layers of a file that predict further tokens.
enum class NextTokens : uint8_t {
  kPassedOver,
  kRead,  // the first of them is the last layer of the ModelSpec
};

// Form in which stock converters write a family's files, where reading allows more than one.
// Synthetic models and tests are written in this form.
struct WrittenForm {
  bool has_free_heads = false;  // heads may be wider or narrower together than the embedding
  bool shares_kv_heads = true;
  bool can_be_tied = false;
  bool has_head_length_keys = false;  // else only where the length is no quotient
  bool has_rope_length_key = false;
  bool has_rope_sections = false;      // rope.dimension_sections
  bool has_expert_length_key = false;  // expert_feed_forward_length, though it is not read
  bool has_shared_count_key = false;   // expert_shared_count, though it is not read
  bool has_whole_queries = false;      // latent attention projects queries at once
  bool has_other_names = false;        // layers' roles with another name have that one
  bool has_moe_step_key = false;       // interleave_moe_layer_step
  bool has_groups = false;             // of experts
  bool has_yarn = false;               // rope.scaling of type yarn
  // llama-quantize leaves small matrices as they are: of decays, gates and rates of delta nets, of
  // latents of keys and from them to heads, of indexers. Its mixes favour queries' two matrices.
  bool keeps_small_matrices = false;
  bool rotates_half = false;  // of each head, by rope.dimension_count
  bool rotates_quarter = false;
  // Stock quantisers that give experts alone few bits take matrices by head for none.
  bool keeps_heads_apart = false;
  float weights_scale = 0.0F;  // expert_weights_scale with expert_weights_norm; 0: not written
};

struct Family {
  std::string_view name;
  AttentionForm attention{};
  ExpertForm experts{};
  RouterRules router{};
  WindowRules windows{};
  LatentRules latent{};
  bool has_pooled_attention = false;  // attention.sliding_window, attention.compress_ratios
  StateRules states{};
  FeedForwardLength feed_forward_length = FeedForwardLength::kOneExpert;
  SharedExpertKind shared_expert = SharedExpertKind::kNone;
  bool has_dense_layers = false;  // a layer without a router has a dense block instead
  bool has_encoder = false;       // an encoder and a decoder (model/read_spec.h)
  bool has_dense_beside = false;  // layers with experts have a dense block, too
  // A layer is a mixer alone, or experts alone where feed_forward_length is not 0.
  bool has_lone_parts = false;
  bool has_latent_experts = false;  // moe_latent_size
  bool has_token_experts = false;   // in the first hash_layer_count layers
  Limits limits = Limits::kNone;
  bool has_next_token_layers = false;    // nextn_predict_layers, usually passed over
  bool can_predict = false;              // the first of these layers can be evaluated
  bool has_post_norms = false;           // norms on the outputs of attention and feed-forward parts
  bool scales_embedding = false;         // by the root of the embedding's length
  bool has_other_norm_name = false;      // output_norm has a second name
  bool has_other_epsilon_name = false;   // attention.layer_norm_epsilon serves, too
  bool has_scales = false;               // embedding_scale, residual_scale, logit_scale and
                                         // attention.scale
  float attention_scale = 0.0F;          // of scores; 0: one over the root of a key's length
  bool may_share_values = false;         // a layer without attn_v has keys for values
  bool rotates = true;                   // heads are rotated by position
  bool rotates_by_key = false;           // false in rope.scaling.finetuned turns rotation off
  bool may_hold_vision = false;          // tensors of an image encoder, which are passed over
  bool has_value_heads_of_own = false;   // attention.value_length may differ from key_length
  ModelRoles<Presence> model_tensors{};  // kNone: refused
  LayerRoles<Presence> layer_tensors{};
  std::optional<StreamMixing> streams{};  // hyper_connection.*; nullopt: one residual stream
  bool mixes_head = false;                // streams are mixed for the head, too
  BlockIndexers blocks = BlockIndexers::kNone;
  bool has_ngrams = false;  // ple.*
  // Reads metadata that no other family has; null: none.
  Status (*read)(const MetaKeys& keys, ModelSpec& spec) = nullptr;
  WrittenForm written{};
};

// Tensors that every family has had so far; a family's file adds its own.
ModelRoles<Presence> CommonModelTensors();
LayerRoles<Presence> CommonLayerTensors();

Family AfMoe();
Family BailingMoe2();
Family BailingMoe3();
Family DeepSeek2();
Family DeepSeek32();
Family DeepSeek4();
Family GlmDsa();
Family Dots1();
Family Ernie45Moe();
Family ExaoneMoe();
Family Gemma4();
Family Glm4Moe();
Family Glm5Next();
Family GptOss();
Family GraniteHybrid();
Family GraniteMoe();
Family HunyuanMoe();
Family KimiLinear();
Family Lfm2Moe();
Family Laguna();
Family Llama();
Family MiniMaxM2();
Family MiniMaxM3();
Family NemotronHMoe();
Family Olmoe();
Family Phimoe();
Family Qwen2Moe();
Family Qwen35Moe();
Family Qwen3Moe();
Family Qwen3Next();
Family Qwen4Exp();
Family Switch();

std::span<const Family> Families();

// Each makes a group of tensors that several families share required.
void RequireQkNorms(LayerRoles<Presence>& layer);
void RequirePrediction(LayerRoles<Presence>& layer);
void RequireSharedExpert(LayerRoles<Presence>& layer);
void RequireDenseBlock(LayerRoles<Presence>& layer);
void RequireDeltaNet(LayerRoles<Presence>& layer);
void RequireKimiDelta(LayerRoles<Presence>& layer);
void RequireMamba2(LayerRoles<Presence>& layer);
void RequireLatentAttention(LayerRoles<Presence>& layer);
void RequireIndexer(LayerRoles<Presence>& layer);
void RequireStreams(LayerRoles<Presence>& layer);

const Family* FindFamily(std::span<const Family> families, std::string_view name);  // or nullptr
std::string FamilyNames(std::span<const Family> families);  // "llama, olmoe"

}  // namespace moestro
