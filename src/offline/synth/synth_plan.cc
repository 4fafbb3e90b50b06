// SPDX-License-Identifier: MIT
#include "offline/synth/synth_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "core/tensor_roles.h"
#include "model/families/families.h"
#include "model/tensor_names.h"
#include "offline/synth/synth_weights.h"

namespace moestro {

const Family* FindSynthFamily(std::string_view arch) { return FindFamily(Families(), arch); }

namespace {

MixerSpec StateOf(const SynthShape& shape, const StateRules& rules) {
  if (rules.mixer == StateMixer::kMamba2) {
    return Mamba2Spec{.n_head = shape.state_heads,
                      .head_dim = shape.state_dim,
                      .n_group = shape.state_key_heads,
                      .n_state = shape.state_size,
                      .n_taps = shape.taps};
  }
  if (rules.mixer == StateMixer::kShortConv) {
    return ShortConvSpec{.n_channels = shape.embd, .n_taps = shape.taps};
  }
  if (rules.mixer == StateMixer::kKimiDelta) {
    return DeltaNetSpec{.n_head_k = shape.heads,
                        .n_head_v = shape.heads,
                        .head_dim = shape.state_dim,
                        .n_taps = shape.taps,
                        .decays_values = true,
                        .has_whole_gates = rules.has_whole_gates};
  }
  return DeltaNetSpec{.n_head_k = shape.state_key_heads,
                      .n_head_v = shape.state_heads,
                      .head_dim = shape.state_dim,
                      .n_taps = shape.taps,
                      .sharing = rules.sharing,
                      .has_sigmoid_gates = rules.has_sigmoid_gates};
}

LatentAttentionSpec LatentOf(const SynthShape& shape, const LatentRules& rules, uint32_t layer) {
  std::optional<IndexerSpec> indexer;
  if (shape.indexer_heads > 0) {
    indexer = {.n_head = shape.indexer_heads,
               .head_dim = shape.indexer_dim,
               .top_k = shape.top_k,
               .n_pool = std::max(shape.pool, 1U),
               .is_shared = shape.shares_indexer(layer)};
  }
  return {.n_head = shape.heads,
          .n_latent = shape.kv_latent,
          .n_turned = rules.has_turned ? shape.rotated : 0,
          .n_plain = shape.head_dim - (rules.has_turned ? shape.rotated : 0),
          .head_dim_v = shape.value_dim,
          .n_query_latent = shape.query_latent,
          .is_joined = shape.is_joined,
          .has_gates = rules.has_gates,
          .indexer = indexer};
}

IndexerSpec BlocksOfHeads(const SynthShape& shape) {
  return {.n_head = shape.kv_heads,
          .head_dim = shape.indexer_dim,
          .top_k = shape.top_k,
          .n_pool = shape.pool,
          .n_last_pools = shape.last_pools,
          .score = PoolScore::kBestPosition};
}

PooledAttentionSpec PooledOf(const SynthShape& shape, uint32_t layer) {
  PooledAttentionSpec spec{.n_head = shape.heads,
                           .head_dim = shape.head_dim,
                           .n_query_latent = shape.query_latent,
                           .window = shape.window,
                           .rope = {.n_dims = shape.rope_dim()},
                           .n_group = shape.head_groups,
                           .n_out = shape.group_out,
                           .n_pool = shape.pool_of(layer)};
  spec.overlaps = spec.n_pool == shape.pool_of(shape.pools_from);
  if (!spec.overlaps) return spec;
  spec.indexer = {
      .n_head = shape.indexer_heads, .head_dim = shape.indexer_dim, .top_k = shape.top_k};
  return spec;
}

// A layer with a window has heads of its own; one without has keys for values.
AttentionSpec OwnHeads(const SynthShape& shape, AttentionSpec attention, uint32_t layer) {
  if (!shape.has_window(layer)) {
    attention.values_are_keys = true;
    return attention;
  }
  attention.n_head_kv = shape.window_kv_heads;
  attention.head_dim_k = attention.head_dim_v = shape.window_head_dim;
  attention.has_rope_factors = false;
  return attention;
}

// A layer of the encoder, of the decoder's attention to the target, or to the source.
LayerSpec EncoderLayer(const SynthShape& shape, uint32_t layer) {
  AttentionSpec attention{.n_head = shape.heads,
                          .n_head_kv = shape.heads,
                          .head_dim_k = shape.head_dim,
                          .head_dim_v = shape.head_dim,
                          .reach = AttentionReach::kAcross};
  const bool is_source = layer < shape.encoder_layers;
  if (is_source || shape.is_target_alone(layer)) {
    attention.reach = is_source ? AttentionReach::kSource : AttentionReach::kPast;
    attention.relative =
        RelativeBias{.n_buckets = kSynthBuckets,
                     .max_distance = kSynthDistance,
                     .is_two_sided = is_source,
                     .layer = static_cast<uint16_t>(is_source ? 0 : shape.encoder_layers)};
  }
  LayerSpec spec{.mixer = attention};
  if (shape.has_experts(layer)) {
    spec.feed_forward.n_ff_expert = shape.ff;
  } else if (!shape.is_target_alone(layer)) {
    spec.feed_forward.n_ff_dense = shape.dense_ff;
  }
  return spec;
}

// The sizes of n-grams; nullopt: the model has none.
std::optional<NgramSpec> NgramsOf(const SynthShape& shape) {
  if (shape.ngram_most == 0) return std::nullopt;
  NgramSpec ngrams{.n_most = shape.ngram_most,
                   .heads_of_each = shape.ngram_heads,
                   .n_values = shape.ngram_values,
                   .n_rows = shape.ngram_names() * shape.ngram_rows,
                   .n_taps = shape.ngram_taps,
                   .factors = SynthNgramFactors(shape.ngram_most)};
  // Hashes modulo numbers that differ.
  for (uint64_t h = 0; h < shape.ngram_names(); ++h) {
    ngrams.heads.push_back({.first = h * shape.ngram_rows, .count = shape.ngram_rows - h});
  }
  return ngrams;
}

}  // namespace

std::vector<uint64_t> SynthNgramFactors(uint32_t n) {
  std::vector<uint64_t> factors;
  SynthRng rng(1, "n-grams");
  for (uint32_t i = 0; i < n; ++i) factors.push_back(rng.Next() | 1);
  return factors;
}

ModelSpec SpecOf(const SynthShape& shape) {
  const Family& family = *FindSynthFamily(shape.arch);
  ModelSpec spec;
  spec.n_embd = shape.embd;
  spec.n_vocab = shape.vocab;
  spec.experts = family.experts;
  spec.router = {.n_expert = shape.experts, .n_used = shape.used};
  for (uint32_t l = 0; l < shape.layers && family.has_encoder; ++l) {
    spec.layers.push_back(EncoderLayer(shape, l));
  }
  if (family.has_encoder) {
    spec.encoder = EncoderSpec{.n_layer = shape.encoder_layers};
    return spec;
  }
  spec.ngrams = NgramsOf(shape);
  if (family.streams) {
    spec.streams = StreamsSpec{.mixing = *family.streams,
                               .n_streams = shape.streams,
                               .n_iterations = kSynthStreamIterations,
                               .eps = kSynthStreamEps,
                               .mixes_head = family.mixes_head,
                               .n_low_rank = shape.stream_rank};
  }
  const OutputGate gate = family.attention.output_gate;
  const auto n_values = static_cast<uint32_t>(shape.q_width());
  AttentionSpec attention{.form = family.attention,
                          .n_head = shape.heads,
                          .n_head_kv = shape.kv_heads,
                          .head_dim_k = shape.head_dim,
                          .head_dim_v = shape.head_dim,
                          .rope = RopeSpec{.n_dims = shape.rope_dim()},
                          .n_gate = gate == OutputGate::kSigmoid    ? n_values
                                    : gate == OutputGate::kSoftplus ? shape.heads
                                                                    : 0};
  if (family.blocks == BlockIndexers::kOfMeans) {
    attention.indexer = IndexerSpec{.n_head = shape.indexer_heads,
                                    .head_dim = shape.indexer_dim,
                                    .top_k = shape.top_k,
                                    .n_pool = std::max(shape.pool, 1U),
                                    .score = PoolScore::kMeanKeys,
                                    .is_idle = shape.pool == 0};
  }
  for (uint32_t l = 0; l < shape.layers + shape.predicting; ++l) {
    LayerSpec& layer = spec.layers.emplace_back();
    layer.predicts = l >= shape.layers;
    if (spec.ngrams && l == shape.ngram_layer) {
      layer.ngram_values = spec.ngrams->n_history() * spec.n_residual();
    }
    layer.mixer = NoMixerSpec();
    if (layer.predicts || shape.has_attention(l)) layer.mixer = attention;
    if (family.blocks == BlockIndexers::kOfHeads && shape.has_experts(l)) {
      std::get<AttentionSpec>(layer.mixer).indexer = BlocksOfHeads(shape);
    }
    if (family.windows.has_own_heads) layer.mixer = OwnHeads(shape, attention, l);
    if (family.latent.is_used) layer.mixer = LatentOf(shape, family.latent, l);
    if (family.has_pooled_attention) layer.mixer = PooledOf(shape, l);
    if (!layer.predicts && shape.has_state(l)) layer.mixer = StateOf(shape, family.states);
    if (shape.has_experts(l)) {
      layer.feed_forward = {.n_ff_expert = shape.ff,
                            .n_ff_shared = shape.shared_ff,
                            .n_ff_dense = family.has_dense_beside ? shape.dense_ff : 0,
                            .n_latent = shape.latent,
                            .has_token_experts = l < shape.token_layers};
    } else if (shape.pattern.empty()) {
      layer.feed_forward = {.n_ff_dense = shape.dense_ff};
    }
  }
  return spec;
}

bool IsWritten(Presence presence) {
  return presence == Presence::kUsual || presence == Presence::kRequired;
}

namespace {

// Deviations of tensors that are not matrices: large enough that a reader who drops such a tensor
// gets visibly different logits.
constexpr float kNormDeviation = 0.1F;
constexpr float kBiasDeviation = 0.1F;
// A sink of a few units takes a good share of a softmax over tens of positions.
constexpr float kSinkDeviation = 2.0F;
constexpr float kRelativeDeviation = 1.0F;
// A bias of a place in a pool, or of a weight of a stream, is added to products of unit variance.
constexpr float kPlaceDeviation = 0.5F;
// Deviation of the bias that shifts a router's probabilities, as a share of their mean: enough to
// change some choices of every token, too little to make favourites.
constexpr float kSelectionDeviation = 0.1F;

// Role of a matrix, on which the number of bits in a mix depends.
MatrixRole MatrixRoleOf(std::string_view name) {
  using Named = std::pair<std::string_view, MatrixRole>;
  constexpr std::array kRoles = {Named{"token_embd.weight", MatrixRole::kTokenEmbd},
                                 Named{"output.weight", MatrixRole::kOutput},
                                 Named{"attn_q.weight", MatrixRole::kAttnQ},
                                 Named{"attn_k.weight", MatrixRole::kAttnK},
                                 Named{"indexer.attn_k.weight", MatrixRole::kAttnK},
                                 Named{"indexer.q_proj.weight", MatrixRole::kKept},
                                 Named{"indexer.k_proj.weight", MatrixRole::kKept},
                                 Named{"hc_ffn_down.weight", MatrixRole::kStreamsDown},
                                 Named{"attn_v.weight", MatrixRole::kAttnV},
                                 Named{"attn_qkv.weight", MatrixRole::kAttnV},
                                 Named{"attn_output.weight", MatrixRole::kAttnOutput},
                                 Named{"ffn_gate_shexp.weight", MatrixRole::kSharedGateUp},
                                 Named{"ffn_up_shexp.weight", MatrixRole::kSharedGateUp},
                                 Named{"ffn_down_shexp.weight", MatrixRole::kSharedDown},
                                 Named{"ffn_gate.weight", MatrixRole::kDenseGateUp},
                                 Named{"ffn_up.weight", MatrixRole::kDenseGateUp},
                                 Named{"ffn_down.weight", MatrixRole::kDenseDown}};
  const auto* found = std::ranges::find(kRoles, name, &Named::first);
  return found != kRoles.end() ? found->second : MatrixRole::kOther;
}

// The same in a family whose small matrices stock quantisers keep.
MatrixRole RoleAmongKept(std::string_view name) {
  constexpr std::array<std::string_view, 8> kKept = {
      "ssm_beta.weight", "ssm_f_a.weight",       "ssm_f_b.weight",  "ssm_g_a.weight",
      "ssm_g_b.weight",  "attn_kv_a_mqa.weight", "attn_k_b.weight", "attn_v_b.weight"};
  if (std::ranges::contains(kKept, name) || name.starts_with("indexer")) return MatrixRole::kKept;
  const bool is_query = name == "attn_q_a.weight" || name == "attn_q_b.weight";
  return is_query ? MatrixRole::kQueryLatent : MatrixRoleOf(name);
}

class Planner {
 public:
  Planner(const SynthShape& shape, const WeightScheme& scheme, const ShapeChoices& choices)
      : shape_(shape),
        family_(*FindSynthFamily(shape.arch)),
        spec_(SpecOf(shape)),
        scheme_(scheme),
        choices_(choices) {}

  std::vector<PlannedTensor> Plan() {
    ForEachModelRole([this](const TensorRole& role, Presence p) { Add(role, p, nullptr); },
                     family_.model_tensors);
    for (layer_ = 0; layer_ < spec_.n_layer(); ++layer_) {
      const LayerSpec& layer = spec_.layers[layer_];
      ForEachLayerRole([&](const TensorRole& role, Presence p) { Add(role, p, &layer); },
                       family_.layer_tensors);
      if (layer.feed_forward.has_experts()) AddExperts();
    }
    return std::move(plan_);
  }

 private:
  // An embedding that serves as output matrix too must not blow up the logits.
  float EmbeddingDeviation() const {
    return choices_.is_tied ? 1.0F / std::sqrt(static_cast<float>(shape_.embd)) : 1.0F;
  }

  // Factor for results that are added to the hidden state: damped, all layers together add about as
  // much as the embedding.
  float ResidualScale() const {
    if (!choices_.is_damped) return EmbeddingDeviation();
    return EmbeddingDeviation() / std::sqrt(2.0F * static_cast<float>(shape_.layers));
  }

  bool IsThere(const TensorRole& role, Presence presence, const LayerSpec* layer) const {
    const bool is_qk_norm = role.name == "attn_q_norm.weight" || role.name == "attn_k_norm.weight";
    const bool is_asked_for = presence == Presence::kOptional &&
                              ((is_qk_norm && shape_.has_qk_norm) ||
                               (role.name == "exp_probs_b.bias" && shape_.has_sigmoid));
    if (!IsWritten(presence) && !is_asked_for && !IsOfEncoder(role, layer)) return false;
    if (role.name == "output.weight") return !choices_.is_tied;
    if (role.name.starts_with("rope_factors")) return shape_.orig_context > 0;
    if (role.use == TensorUse::kOnDisk) return spec_.ngrams.has_value();
    if (layer == nullptr) return true;
    const AttentionSpec* const attention = layer->attention();
    if (role.name == "attn_v.weight" && attention != nullptr && attention->values_are_keys) {
      return false;
    }
    return HasPart(*layer, role.part);
  }

  // Whether the role is one that only some layers of a model with an encoder have.
  bool IsOfEncoder(const TensorRole& role, const LayerSpec* layer) const {
    if (!spec_.encoder || layer == nullptr) return false;
    const std::optional<RelativeBias>& relative = layer->attention()->relative;
    if (role.name == "attn_rel_b.weight") return relative && relative->layer == layer_;
    return role.name == "ffn_norm.weight" && layer->feed_forward.is_there();
  }

  // Average probability of an expert; a sigmoid does not share one among the experts.
  float MeanProbability() const {
    if (family_.router.gating == Gating::kSigmoid || shape_.has_sigmoid) return 0.5F;
    if (family_.router.gating == Gating::kSoftplusRoot) return 0.8F;
    return 1.0F / static_cast<float>(shape_.experts);
  }

  // layer: whose role it is; null: of the whole model.
  void Add(const TensorRole& role, Presence presence, const LayerSpec* layer) {
    if (!IsThere(role, presence, layer)) return;
    const int64_t width = DimSize(role.ne0, spec_, layer);
    const int64_t rows = DimSize(role.ne1, spec_, layer);
    const int64_t matrices = DimSize(role.ne2, spec_, layer);
    const bool is_renamed =
        !role.other_name.empty() && role.part != LayerModule::kPredicting &&
        (layer != nullptr ? family_.written.has_other_names : family_.has_other_norm_name);
    std::string name(is_renamed ? role.other_name : role.name);
    if (layer != nullptr) name = LayerTensorName(layer_, name);
    const bool is_small = role.name.ends_with("_fn.weight") || role.name.ends_with("_ape.weight");
    const bool is_float =
        role.name == "ffn_gate_inp.weight" || (is_small && family_.written.keeps_small_matrices);
    const bool is_matrix =
        role.kind == TensorKind::kMatrix || (is_small && !family_.written.keeps_small_matrices);
    if (is_matrix && !is_float) {
      const bool keeps_some = family_.written.keeps_small_matrices;
      return AddMatrix(std::move(name),
                       keeps_some ? RoleAmongKept(role.name) : MatrixRoleOf(role.name),
                       {width, rows, matrices}, role.ne2 == Dim::kOne ? 2 : 3);
    }
    const auto [fill, deviation] = VectorFill(role.name, width);
    plan_.push_back({.name = std::move(name),
                     .ne = {width, rows, matrices},
                     .dims = role.ne2 != Dim::kOne   ? 3
                             : role.ne1 != Dim::kOne ? 2
                                                     : 1,
                     .type = role.kind == TensorKind::kNumbers ? GGML_TYPE_I32 : GGML_TYPE_F32,
                     .fill = fill,
                     .deviation = deviation});
  }

  // Filling of F32 tensors: vectors and routers.
  std::pair<Fill, float> VectorFill(std::string_view name, int64_t width) const {
    if (name == "ssm_a") {
      if (!family_.states.has_decay_bound) return {Fill::kDecay, 0.0F};
      return {family_.states.has_negative_rates ? Fill::kMinusRate : Fill::kRate, 0.0F};
    }
    if (name == "ffn_gate_tid2eid.weight") return {Fill::kExperts, 0.0F};
    if (name == "rope_factors_long.weight") return {Fill::kRopeLong, 0.0F};
    if (name == "rope_factors_short.weight") return {Fill::kRopeShort, 0.0F};
    if (name == "rope_freqs.weight") return {Fill::kRopePart, 0.0F};
    if (name.ends_with("norm.weight") || name.starts_with("ple_norm"))
      return {Fill::kNearOne, kNormDeviation};
    if (name == "attn_sinks.weight") return {Fill::kNormal, kSinkDeviation};
    if (name == "exp_probs_b.bias") return {Fill::kNormal, kSelectionDeviation * MeanProbability()};
    if (name == "attn_output.bias" || name == "ffn_down_exps.bias")
      return {Fill::kNormal, kBiasDeviation * ResidualScale()};
    if (name.ends_with(".bias")) return {Fill::kNormal, kBiasDeviation};
    if (name.ends_with("scale.weight") || name.ends_with(".scale")) {
      return {Fill::kNearOne, kNormDeviation};
    }
    // Where the router's input is scaled, it is divided by the root of its length as well.
    const bool is_divided = family_.layer_tensors.router_scale != Presence::kNone;
    const float unit = 1.0F / std::sqrt(static_cast<float>(width));
    if (name == "ffn_gate_inp.weight") return {Fill::kRouter, is_divided ? 1.0F : unit};
    if (name == "attn_rel_b.weight") return {Fill::kNormal, kRelativeDeviation};
    if (name.ends_with("_compressor_ape.weight") || name.ends_with("_base.weight")) {
      return {Fill::kNormal, kPlaceDeviation};
    }
    return {Fill::kNormal, unit};
  }

  // Layers before `layer` with a matrix of attention's or a delta net's values.
  uint32_t ValuesBefore(uint32_t layer) const {
    const auto has_values = [](const LayerSpec& l) {
      if (l.attention() != nullptr) return !l.attention()->values_are_keys;
      return l.delta_net() != nullptr;
    };
    return static_cast<uint32_t>(
        std::count_if(spec_.layers.begin(), spec_.layers.begin() + layer, has_values));
  }

  // Fan-in decides the deviation, so that a normalised input gives an output of unit variance.
  void AddMatrix(std::string name, MatrixRole role, std::array<int64_t, 3> ne, int dims) {
    float deviation = 1.0F / std::sqrt(static_cast<float>(ne[0]));
    if (role == MatrixRole::kTokenEmbd) deviation = EmbeddingDeviation();
    // Models with an encoder do not divide scores by the root of a head's width.
    if (role == MatrixRole::kAttnQ && spec_.encoder) {
      deviation /= std::sqrt(static_cast<float>(shape_.head_dim));
    }
    if (role == MatrixRole::kAttnOutput || name.ends_with("ssm_out.weight") ||
        name.ends_with("attn_output_b.weight") || name.ends_with("shortconv.out_proj.weight") ||
        role == MatrixRole::kExpertDown || role == MatrixRole::kSharedDown ||
        role == MatrixRole::kDenseDown) {
      deviation *= ResidualScale();
    }
    // The mean of streams of a low rank, each normed and halved by a gate, goes to the output.
    if (role == MatrixRole::kOutput && shape_.stream_rank > 0) deviation *= 2.0F;
    // Gates and weights of streams are sigmoids of small numbers, which must be felt.
    if (name.contains("hc_") && name.ends_with("_up.weight")) deviation *= 8.0F;
    if (name.contains("hc_") && name.ends_with("_inject.weight")) deviation *= 4.0F;
    if (name == "per_layer_token_embd.weight") deviation = 1.0F;
    if (name.ends_with("_compressor_ape.weight")) deviation = kPlaceDeviation;
    // Squares of normal values are twice as large as products of two of these with a gate.
    const bool is_down = role == MatrixRole::kExpertDown || role == MatrixRole::kSharedDown;
    if (is_down && !HasGate(family_.experts.activation)) deviation *= 0.5F;
    // Counted among layers that have such a matrix.
    const bool is_counted = role == MatrixRole::kAttnV;
    const MatrixContext place{.role = role,
                              .layer = is_counted ? ValuesBefore(layer_) : layer_,
                              .layers = is_counted ? ValuesBefore(shape_.layers) : shape_.layers,
                              .experts = shape_.experts,
                              .row = ne[0],
                              .is_tied = choices_.is_tied,
                              .is_of_heads = role == MatrixRole::kOther && dims == 3 &&
                                             !family_.written.keeps_heads_apart};
    plan_.push_back({.name = std::move(name),
                     .ne = ne,
                     .dims = dims,
                     .type = TypeFor(scheme_, place),
                     .fill = Fill::kNormal,
                     .deviation = deviation});
  }

  void AddExperts() {
    const int64_t embd = shape_.expert_embd();
    const int64_t ff = shape_.ff;
    const int64_t n = shape_.experts;
    const auto name = [this](Matrix matrix) { return MergedExpertsName(layer_, matrix); };
    if (HasGate(family_.experts.activation)) {
      AddMatrix(name(Matrix::kGate), MatrixRole::kExpertGateUp, {embd, ff, n}, 3);
    }
    AddMatrix(name(Matrix::kUp), MatrixRole::kExpertGateUp, {embd, ff, n}, 3);
    AddMatrix(name(Matrix::kDown), MatrixRole::kExpertDown, {ff, embd, n}, 3);
  }

  const SynthShape& shape_;
  const Family& family_;
  ModelSpec spec_;
  const WeightScheme& scheme_;
  ShapeChoices choices_;
  uint32_t layer_ = 0;
  std::vector<PlannedTensor> plan_;
};

}  // namespace

std::vector<PlannedTensor> PlanTensors(const SynthShape& shape, const WeightScheme& scheme,
                                       const ShapeChoices& choices) {
  return Planner(shape, scheme, choices).Plan();
}

}  // namespace moestro
