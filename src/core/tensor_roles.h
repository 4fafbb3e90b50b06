// SPDX-License-Identifier: MIT
// Roles of the tensors that stay in memory, each role once: its name in a file, its shape, its
// place and its use. LayerRoles holds any value for each role: the extent in the file, the loaded
// tensor, the presence in a family.
#pragma once

#include <cstddef>
#include <vector>

#include "core/tensor_role.h"

namespace moestro {

template <class T>
struct LayerRoles {
  T attn_norm{};
  T attn_norm_b{};
  T attn_q{};
  T attn_k{};
  T attn_v{};
  T attn_qkv{};  // fused form, instead of the three above
  T attn_q_b{};
  T attn_k_b{};
  T attn_v_b{};
  T attn_qkv_b{};
  T attn_out{};
  T attn_out_b{};
  T attn_q_norm{};
  T attn_k_norm{};
  T attn_gate{};
  T latent_q_a{};  // of latent attention: the two matrices of queries and the norm between them
  T latent_q_norm{};
  T latent_q_b{};
  T latent_kv_a{};  // keys, before norm and rotation
  T latent_kv_norm{};
  T latent_k_b{};   // of each head: from its query to the latent
  T latent_v_b{};   // of each head: from the latent to its values
  T latent_kv_b{};  // both together: from the latent to keys and values
  T indexer_q{};    // of an indexer: queries, of the latent of queries
  T indexer_k{};
  T indexer_k_norm{};
  T indexer_k_norm_b{};
  T indexer_weights{};  // of its heads
  T block_q{};          // of an indexer of blocks: queries and keys, and the norms of queries
  T block_k{};
  T block_q_norm{};
  T indexer_pool_gate{};  // gates of positions in their pool
  T indexer_pool_b{};     // added to gates, for each place in a pool
  T pooled_kv{};          // of pooled attention: a position's key
  T pooled_out_a{};       // of each group of heads
  T pooled_out_b{};
  T pool_kv{};  // positions' values and gates in keys of pools, what is added to the gates of each
  T pool_gate{};  // place in a pool, and the norm of keys
  T pool_b{};
  T pool_norm{};
  T indexer_pool_kv{};  // the same of an indexer, beside indexer_pool_gate and indexer_pool_b
  T indexer_pool_norm{};
  T attn_post_norm{};  // norm of attention's result before it is added
  T attn_relative{};   // of a stack's first layer: added to scores, [range of distances][head]
  T attn_sinks{};      // of each head a score that is part of the softmax and has no value
  T delta_qkv{};       // of a delta net, before the convolution
  T delta_gate{};
  T state_in{};  // everything that is projected: Mamba-2, and delta nets of older files
  T state_conv{};
  T state_dt_b{};
  T state_a{};           // rate at which a head's state decays
  T state_a_column{};    // state_a as a column, one value to a row
  T state_alpha{};       // factor of that rate for a token
  T state_beta{};        // how much of a token a head takes in
  T state_beta_alpha{};  // both, instead
  T state_norm{};
  T state_out{};
  // Tensors of a delta net whose values decay on their own: the convolutions of queries, keys and
  // values, and the matrices that compute decays and gates, by way of head_dim values or at once.
  T kimi_conv_q{};
  T kimi_conv_k{};
  T kimi_conv_v{};
  T kimi_decay_a{};
  T kimi_decay_b{};
  T kimi_gate_a{};
  T kimi_gate_b{};
  T mamba_conv_b{};
  T mamba_d{};  // how much of a value a head passes on
  T mamba_norm{};
  T short_in{};  // b, c, x of a short convolution
  T short_conv{};
  T short_out{};
  T ffn_post_norm{};  // norm of the feed-forward part's result before it is added
  // Norms where a dense block stands beside experts: of the dense block's and the experts' results,
  // and of the experts' input.
  T dense_post_norm{};
  T experts_norm{};
  T experts_post_norm{};
  T output_scale{};  // factor of the layer's result
  T ffn_norm{};
  T ffn_norm_b{};
  // Weights of residual streams in a half layer, of the mixer and of the feed-forward part: the
  // matrix, what is added to its results, and factors of these.
  T mixer_streams{};
  T mixer_streams_b{};
  T mixer_streams_scale{};
  T ffn_streams{};
  T ffn_streams_b{};
  T ffn_streams_scale{};
  // The same for streams that are mixed by matrices of a low rank: norms of all streams, the two
  // matrices of gates, and that of the weights of results.
  T mixer_streams_norm{};
  T mixer_streams_down{};
  T mixer_streams_up{};
  T mixer_streams_inject{};
  T ffn_streams_norm{};
  T ffn_streams_down{};
  T ffn_streams_up{};
  T ffn_streams_inject{};
  // Matrices of n-grams' keys and values; norms of keys, of streams and of the convolution's input.
  T ngram_key{};
  T ngram_value{};
  T ngram_key_norm{};
  T ngram_query_norm{};
  T ngram_conv_norm{};
  T ngram_conv{};
  T router{};
  T router_b{};
  T token_experts{};  // the experts of each token
  T selection_b{};    // added to scores for the choice alone, not for weights
  T gate_b{};         // of the experts, one row each
  T up_b{};
  T down_b{};
  T down_scale{};     // factor of each expert's results
  T router_scale{};   // of the router's input, which is the residual
  T latent_down{};    // of routed experts' input
  T latent_up{};      // of their results
  T shared_router{};  // weighs the shared expert
  T shared_gate{};
  T shared_up{};
  T shared_down{};
  T dense_gate{};  // of a layer without experts
  T dense_up{};
  T dense_down{};
  // In a layer that predicts further tokens: norms of a token's embedding and of the hidden state
  // before that token, the matrix that joins both, and the norm before the head.
  T predict_embd_norm{};
  T predict_hidden_norm{};
  T predict_join{};
  T predict_head_norm{};
};

template <class T>
struct ModelRoles {
  T token_embd{};
  T output{};  // the embedding again where a file has none
  T output_b{};
  T output_norm{};
  T output_norm_b{};
  T encoder_norm{};  // norm of the encoder's result
  T rope_freqs{};
  T rope_factors_long{};
  T rope_factors_short{};
  // Norms and matrices of gates of the head's input, where a model has several residual streams.
  T head_streams_norm{};
  T head_streams_down{};
  T head_streams_up{};
  T head_streams{};  // the same as mixer_streams, of the head's input
  T head_streams_b{};
  T head_streams_scale{};
  T ngram_table{};
};

namespace tensor_roles_internal {

// The part of ForEachLayerRole() for latent attention.
template <class Visit, class... Parts>
constexpr void ForEachLatentRole(Visit&& visit, Parts&... parts) {
  using enum Dim;
  constexpr auto kMat = TensorKind::kMatrix;
  constexpr auto kVec = TensorKind::kVector;
  constexpr auto kMul = TensorUse::kOnlyMultiplied;
  constexpr auto kAny = TensorUse::kAny;
  constexpr auto kLatentPart = LayerModule::kLatentAttention;
  constexpr auto kQueries = LayerModule::kQueryLatent;
  constexpr auto kSplit = LayerModule::kSplitHeads;
  constexpr auto kJoined = LayerModule::kJoinedHeads;
  using Role = TensorRole;
  visit(Role{"attn_q_a.weight", kMat, kEmbd, kQueryLatent, kMul, kQueries}, parts.latent_q_a...);
  visit(Role{"attn_q_a_norm.weight", kVec, kQueryLatent, kOne, kAny, kQueries},
        parts.latent_q_norm...);
  visit(Role{"attn_q_b.weight", kMat, kQueryLatent, kQuery, kMul, kQueries}, parts.latent_q_b...);
  visit(Role{"attn_kv_a_mqa.weight", kMat, kEmbd, kLatentKey, kMul, kLatentPart},
        parts.latent_kv_a...);
  visit(Role{"attn_kv_a_norm.weight", kVec, kKeyLatent, kOne, kAny, LayerModule::kSharedKey},
        parts.latent_kv_norm...);
  visit(Role{"attn_k_b.weight", kMat, kPlainQuery, kKeyLatent, kAny, kSplit, {}, kHeads},
        parts.latent_k_b...);
  visit(Role{"attn_v_b.weight", kMat, kKeyLatent, kHeadValues, kAny, kSplit, {}, kHeads},
        parts.latent_v_b...);
  constexpr auto kIndex = LayerModule::kIndexer;
  visit(Role{"indexer.attn_q_b.weight", kMat, kQueryLatent, kIndexerQueries, kMul,
             LayerModule::kIndexerQueries},
        parts.indexer_q...);
  visit(Role{"indexer.attn_k.weight", kMat, kEmbd, kIndexerKey, kMul, kIndex}, parts.indexer_k...);
  visit(Role{"indexer.k_norm.weight", kVec, kIndexerKey, kOne, kAny, LayerModule::kAnyIndexer},
        parts.indexer_k_norm...);
  visit(Role{"indexer.k_norm.bias", kVec, kIndexerKey, kOne, kAny, kIndex},
        parts.indexer_k_norm_b...);
  visit(Role{"indexer.proj.weight", kMat, kEmbd, kIndexerHeads, kMul, LayerModule::kIndexerQueries},
        parts.indexer_weights...);
  constexpr auto kBlocks = LayerModule::kBlockIndexer;
  visit(Role{"indexer.q_proj.weight", kMat, kEmbd, kIndexerQueries, kMul, kBlocks},
        parts.block_q...);
  visit(Role{"indexer.k_proj.weight", kMat, kEmbd, kIndexerKey, kMul, kBlocks}, parts.block_k...);
  visit(Role{"indexer.q_norm.weight", kVec, kIndexerKey, kOne, kAny, kBlocks},
        parts.block_q_norm...);
  constexpr auto kPools = LayerModule::kIndexerPools;
  visit(Role{"indexer_compressor_gate.weight", kMat, kEmbd, kIndexerShares, kMul, kPools},
        parts.indexer_pool_gate...);
  visit(Role{"indexer_compressor_ape.weight", kVec, kIndexerShares, kIndexerPool, kAny, kPools},
        parts.indexer_pool_b...);
  visit(Role{"attn_kv_b.weight", kMat, kKeyLatent, kJoinedHeads, kAny, kJoined},
        parts.latent_kv_b...);
}

// The part of ForEachLayerRole() for pooled attention.
template <class Visit, class... Parts>
constexpr void ForEachPooledRole(Visit&& visit, Parts&... parts) {
  using enum Dim;
  constexpr auto kMat = TensorKind::kMatrix;
  constexpr auto kVec = TensorKind::kVector;
  constexpr auto kMul = TensorUse::kOnlyMultiplied;
  constexpr auto kAny = TensorUse::kAny;
  constexpr auto kPooled = LayerModule::kPooled;
  constexpr auto kPools = LayerModule::kPools;
  constexpr auto kIndex = LayerModule::kPoolIndexer;
  using Role = TensorRole;
  visit(Role{"attn_kv.weight", kMat, kEmbd, kKeyLatent, kMul, kPooled}, parts.pooled_kv...);
  visit(Role{"attn_output_a.weight", kMat, kGroupHeads, kGroupOut, kAny, kPooled, {}, kGroups},
        parts.pooled_out_a...);
  visit(Role{"attn_output_b.weight", kMat, kGroupsOut, kEmbd, kMul, kPooled},
        parts.pooled_out_b...);
  visit(Role{"attn_compressor_kv.weight", kMat, kEmbd, kPoolShares, kMul, kPools},
        parts.pool_kv...);
  visit(Role{"attn_compressor_gate.weight", kMat, kEmbd, kPoolShares, kMul, kPools},
        parts.pool_gate...);
  visit(Role{"attn_compressor_ape.weight", kVec, kPoolShares, kPool, kAny, kPools},
        parts.pool_b...);
  visit(Role{"attn_compressor_norm.weight", kVec, kKeyLatent, kOne, kAny, kPools},
        parts.pool_norm...);
  visit(Role{"indexer_compressor_kv.weight", kMat, kEmbd, kIndexerShares, kMul, kIndex},
        parts.indexer_pool_kv...);
  visit(Role{"indexer_compressor_norm.weight", kVec, kIndexerKey, kOne, kAny, kIndex},
        parts.indexer_pool_norm...);
}

// The part of ForEachLayerRole() for several residual streams.
template <class Visit, class... Parts>
constexpr void ForEachStreamRole(Visit&& visit, Parts&... parts) {
  using enum Dim;
  constexpr auto kMat = TensorKind::kMatrix;
  constexpr auto kVec = TensorKind::kVector;
  constexpr auto kMul = TensorUse::kOnlyMultiplied;
  using Role = TensorRole;
  visit(Role{"hc_attn_fn.weight", kMat, kStreams, kStreamWeights, kMul}, parts.mixer_streams...);
  visit(Role{"hc_attn_base.weight", kVec, kStreamWeights}, parts.mixer_streams_b...);
  visit(Role{"hc_attn_scale.weight", kVec, kStreamScales}, parts.mixer_streams_scale...);
  visit(Role{"hc_ffn_fn.weight", kMat, kStreams, kStreamWeights, kMul}, parts.ffn_streams...);
  visit(Role{"hc_ffn_base.weight", kVec, kStreamWeights}, parts.ffn_streams_b...);
  visit(Role{"hc_ffn_scale.weight", kVec, kStreamScales}, parts.ffn_streams_scale...);
  visit(Role{"hc_attn_norm.weight", kVec, kStreams}, parts.mixer_streams_norm...);
  visit(Role{"hc_attn_down.weight", kMat, kStreams, kStreamLowRank, kMul},
        parts.mixer_streams_down...);
  visit(Role{"hc_attn_up.weight", kMat, kStreamLowRank, kStreams, kMul}, parts.mixer_streams_up...);
  visit(Role{"hc_attn_inject.weight", kMat, kStreams, kStreamNumber, kMul},
        parts.mixer_streams_inject...);
  visit(Role{"hc_ffn_norm.weight", kVec, kStreams}, parts.ffn_streams_norm...);
  visit(Role{"hc_ffn_down.weight", kMat, kStreams, kStreamLowRank, kMul},
        parts.ffn_streams_down...);
  visit(Role{"hc_ffn_up.weight", kMat, kStreamLowRank, kStreams, kMul}, parts.ffn_streams_up...);
  visit(Role{"hc_ffn_inject.weight", kMat, kStreams, kStreamNumber, kMul},
        parts.ffn_streams_inject...);
}

// The part of ForEachLayerRole() for n-grams.
template <class Visit, class... Parts>
constexpr void ForEachNgramRole(Visit&& visit, Parts&... parts) {
  using enum Dim;
  constexpr auto kMat = TensorKind::kMatrix;
  constexpr auto kVec = TensorKind::kVector;
  constexpr auto kMul = TensorUse::kOnlyMultiplied;
  constexpr auto kAny = TensorUse::kAny;
  constexpr auto kPart = LayerModule::kNgrams;
  using Role = TensorRole;
  visit(Role{"ple_key.weight", kMat, kNgrams, kStreams, kMul, kPart}, parts.ngram_key...);
  visit(Role{"ple_value.weight", kMat, kNgrams, kEmbd, kMul, kPart}, parts.ngram_value...);
  visit(Role{"ple_norm_key.weight", kVec, kStreams, kOne, kAny, kPart}, parts.ngram_key_norm...);
  visit(Role{"ple_norm_query.weight", kVec, kStreams, kOne, kAny, kPart},
        parts.ngram_query_norm...);
  visit(Role{"ple_norm_conv.weight", kVec, kStreams, kOne, kAny, kPart}, parts.ngram_conv_norm...);
  visit(Role{"ple_conv1d.weight", kMat, kNgramTaps, kStreams, TensorUse::kByHost, kPart},
        parts.ngram_conv...);
}

// The part of ForEachLayerRole() for layers that predict further tokens.
template <class Visit, class... Parts>
constexpr void ForEachPredictingRole(Visit&& visit, Parts&... parts) {
  using enum Dim;
  constexpr auto kMat = TensorKind::kMatrix;
  constexpr auto kVec = TensorKind::kVector;
  constexpr auto kMul = TensorUse::kOnlyMultiplied;
  constexpr auto kAny = TensorUse::kAny;
  constexpr auto kPart = LayerModule::kPredicting;
  using Role = TensorRole;
  visit(Role{"nextn.enorm.weight", kVec, kEmbd, kOne, kAny, kPart}, parts.predict_embd_norm...);
  visit(Role{"nextn.hnorm.weight", kVec, kEmbd, kOne, kAny, kPart}, parts.predict_hidden_norm...);
  visit(Role{"nextn.eh_proj.weight", kMat, kTwoEmbd, kEmbd, kMul, kPart}, parts.predict_join...);
  visit(Role{"nextn.shared_head_norm.weight", kVec, kEmbd, kOne, kAny, kPart,
             "layer_output_norm.weight"},
        parts.predict_head_norm...);
}

// The part of ForEachLayerRole() for mixers with a state.
template <class Visit, class... Parts>
constexpr void ForEachStateRole(Visit&& visit, Parts&... parts) {
  using enum Dim;
  constexpr auto kMat = TensorKind::kMatrix;
  constexpr auto kVec = TensorKind::kVector;
  constexpr auto kMul = TensorUse::kOnlyMultiplied;
  constexpr auto kAny = TensorUse::kAny;
  constexpr auto kDelta = LayerModule::kDeltaNet;
  constexpr auto kMamba = LayerModule::kMamba2;
  constexpr auto kSsm = LayerModule::kStateHeads;
  constexpr auto kKimi = LayerModule::kKimiDelta;
  constexpr auto kTwo = LayerModule::kGatesInTwo;
  constexpr auto kColumn = LayerModule::kColumnDecay;
  constexpr auto kShort = LayerModule::kShortConv;
  using Role = TensorRole;
  visit(Role{"attn_qkv.weight", kMat, kEmbd, kConvolved, kMul, kDelta}, parts.delta_qkv...);
  visit(Role{"attn_gate.weight", kMat, kEmbd, kMixerOut, kMul, kDelta}, parts.delta_gate...);
  visit(Role{"ssm_in.weight", kMat, kEmbd, kProjected, kMul, kSsm}, parts.state_in...);
  visit(Role{"ssm_conv1d.weight", kVec, kTaps, kConvolved, kAny, kSsm}, parts.state_conv...);
  visit(Role{"ssm_dt.bias", kVec, kDecays, kOne, kAny, kSsm}, parts.state_dt_b...);
  visit(Role{"ssm_a", kVec, kStateHeads, kOne, kAny, kDelta}, parts.state_a...);
  visit(Role{"ssm_alpha.weight", kMat, kEmbd, kStateHeads, kMul, kDelta}, parts.state_alpha...);
  visit(Role{"ssm_beta.weight", kMat, kEmbd, kStateHeads, kMul, kDelta}, parts.state_beta...);
  visit(Role{"ssm_ba.weight", kMat, kEmbd, kStateHeads2, kMul, kDelta}, parts.state_beta_alpha...);
  visit(Role{"ssm_norm.weight", kVec, kStateHead, kOne, kAny, kDelta}, parts.state_norm...);
  visit(Role{"ssm_out.weight", kMat, kMixerOut, kEmbd, kMul, kSsm}, parts.state_out...);
  visit(Role{"ssm_conv1d_q.weight", kVec, kTaps, kOne, kAny, kKimi, {}, kKeys},
        parts.kimi_conv_q...);
  visit(Role{"ssm_conv1d_k.weight", kVec, kTaps, kOne, kAny, kKimi, {}, kKeys},
        parts.kimi_conv_k...);
  visit(Role{"ssm_conv1d_v.weight", kVec, kTaps, kOne, kAny, kKimi, {}, kValues},
        parts.kimi_conv_v...);
  visit(Role{"ssm_f_a.weight", kMat, kEmbd, kGateInputs, kMul, kKimi}, parts.kimi_decay_a...);
  visit(Role{"ssm_f_b.weight", kMat, kGateInputs, kKeys, kMul, kTwo}, parts.kimi_decay_b...);
  visit(Role{"ssm_g_a.weight", kMat, kEmbd, kGateInputs, kMul, kKimi}, parts.kimi_gate_a...);
  visit(Role{"ssm_g_b.weight", kMat, kGateInputs, kValues, kMul, kTwo}, parts.kimi_gate_b...);
  visit(Role{"ssm_conv1d.bias", kVec, kConvolved, kOne, kAny, kMamba}, parts.mamba_conv_b...);
  visit(Role{"ssm_a", kVec, kOne, kStateHeads, kAny, kColumn}, parts.state_a_column...);
  visit(Role{"ssm_d", kVec, kOne, kStateHeads, kAny, kMamba}, parts.mamba_d...);
  visit(Role{"ssm_norm.weight", kVec, kStateGroup, kStateGroups, kAny, kMamba},
        parts.mamba_norm...);
  visit(Role{"shortconv.in_proj.weight", kMat, kEmbd, kProjected, kMul, kShort}, parts.short_in...);
  visit(Role{"shortconv.conv.weight", kVec, kTaps, kConvolved, kAny, kShort}, parts.short_conv...);
  visit(Role{"shortconv.out_proj.weight", kMat, kConvolved, kEmbd, kMul, kShort},
        parts.short_out...);
}

// The part of ForEachLayerRole() for experts and for blocks beside or instead of experts.
template <class Visit, class... Parts>
constexpr void ForEachFeedForwardRole(Visit&& visit, Parts&... parts) {
  using enum Dim;
  constexpr auto kMat = TensorKind::kMatrix;
  constexpr auto kVec = TensorKind::kVector;
  constexpr auto kMul = TensorUse::kOnlyMultiplied;
  constexpr auto kAny = TensorUse::kAny;
  constexpr auto kHost = TensorUse::kByHost;
  constexpr auto kEvery = LayerModule::kEvery;
  constexpr auto kMoe = LayerModule::kExperts;
  constexpr auto kLatentPart = LayerModule::kLatent;
  constexpr auto kShared = LayerModule::kShared;
  constexpr auto kDense = LayerModule::kDense;
  using Role = TensorRole;
  visit(Role{"ffn_norm.weight", kVec, kEmbd, kOne, kAny, kEvery, "post_attention_norm.weight"},
        parts.ffn_norm...);
  visit(Role{"ffn_norm.bias", kVec, kEmbd}, parts.ffn_norm_b...);
  visit(Role{"ffn_gate_inp.weight", kMat, kEmbd, kExperts, kAny, kMoe}, parts.router...);
  visit(Role{"ffn_gate_inp.bias", kVec, kExperts, kOne, kHost, kMoe}, parts.router_b...);
  visit(Role{"ffn_gate_tid2eid.weight", TensorKind::kNumbers, kUsedExperts, kVocab, kHost,
             LayerModule::kTokenExperts},
        parts.token_experts...);
  visit(Role{"exp_probs_b.bias", kVec, kExperts, kOne, kHost, LayerModule::kScoredExperts},
        parts.selection_b...);
  visit(Role{"ffn_gate_exps.bias", kVec, kExpertFf, kExperts, kHost, kMoe}, parts.gate_b...);
  visit(Role{"ffn_up_exps.bias", kVec, kExpertFf, kExperts, kHost, kMoe}, parts.up_b...);
  visit(Role{"ffn_down_exps.bias", kVec, kEmbd, kExperts, kHost, kMoe}, parts.down_b...);
  visit(Role{"ffn_latent_down.weight", kMat, kEmbd, kLatent, kMul, kLatentPart},
        parts.latent_down...);
  visit(Role{"ffn_latent_up.weight", kMat, kLatent, kEmbd, kMul, kLatentPart}, parts.latent_up...);
  visit(Role{"ffn_down_exps.scale", kVec, kExperts, kOne, kHost, kMoe}, parts.down_scale...);
  visit(Role{"ffn_gate_inp.scale", kVec, kEmbd, kOne, kAny, kMoe}, parts.router_scale...);
  visit(Role{"post_ffw_norm_1.weight", kVec, kEmbd, kOne, kAny, kMoe}, parts.dense_post_norm...);
  visit(Role{"pre_ffw_norm_2.weight", kVec, kEmbd, kOne, kAny, kMoe}, parts.experts_norm...);
  visit(Role{"post_ffw_norm_2.weight", kVec, kEmbd, kOne, kAny, kMoe}, parts.experts_post_norm...);
  visit(Role{"layer_output_scale.weight", kVec, kOne}, parts.output_scale...);
  visit(Role{"ffn_gate_inp_shexp.weight", kVec, kEmbd, kOne, kAny, kShared},
        parts.shared_router...);
  visit(Role{"ffn_gate_shexp.weight", kMat, kEmbd, kSharedFf, kMul, kShared}, parts.shared_gate...);
  visit(Role{"ffn_up_shexp.weight", kMat, kEmbd, kSharedFf, kMul, kShared}, parts.shared_up...);
  visit(Role{"ffn_down_shexp.weight", kMat, kSharedFf, kEmbd, kMul, kShared}, parts.shared_down...);
  visit(Role{"ffn_gate.weight", kMat, kEmbd, kDenseFf, kMul, kDense}, parts.dense_gate...);
  visit(Role{"ffn_up.weight", kMat, kEmbd, kDenseFf, kMul, kDense}, parts.dense_up...);
  visit(Role{"ffn_down.weight", kMat, kDenseFf, kEmbd, kMul, kDense}, parts.dense_down...);
}

}  // namespace tensor_roles_internal

// Calls visit(role, parts.member...) for every role of a layer, in a fixed order. `parts` are
// LayerRoles of any types: their members for one role are visited together.
template <class Visit, class... Parts>
constexpr void ForEachLayerRole(Visit&& visit, Parts&... parts) {
  using enum Dim;
  constexpr auto kMat = TensorKind::kMatrix;
  constexpr auto kVec = TensorKind::kVector;
  constexpr auto kMul = TensorUse::kOnlyMultiplied;
  constexpr auto kAny = TensorUse::kAny;
  constexpr auto kAtt = LayerModule::kAttention;
  constexpr auto kAttended = LayerModule::kAttended;
  using Role = TensorRole;
  visit(Role{"attn_norm.weight", kVec, kEmbd}, parts.attn_norm...);
  visit(Role{"attn_norm.bias", kVec, kEmbd}, parts.attn_norm_b...);
  visit(Role{"attn_q.weight", kMat, kEmbd, kQuery, kMul, LayerModule::kQueried}, parts.attn_q...);
  visit(Role{"attn_k.weight", kMat, kEmbd, kKeys, kMul, LayerModule::kKeyed}, parts.attn_k...);
  visit(Role{"attn_v.weight", kMat, kEmbd, kValues, kMul, LayerModule::kKeyed}, parts.attn_v...);
  visit(Role{"attn_qkv.weight", kMat, kEmbd, kQkv, kMul, kAtt}, parts.attn_qkv...);
  visit(Role{"attn_q.bias", kVec, kQuery, kOne, kAny, kAtt}, parts.attn_q_b...);
  visit(Role{"attn_k.bias", kVec, kKeys, kOne, kAny, kAtt}, parts.attn_k_b...);
  visit(Role{"attn_v.bias", kVec, kValues, kOne, kAny, kAtt}, parts.attn_v_b...);
  visit(Role{"attn_qkv.bias", kVec, kQkv, kOne, kAny, kAtt}, parts.attn_qkv_b...);
  visit(Role{"attn_output.weight", kMat, kMixerOut, kEmbd, kMul, kAttended}, parts.attn_out...);
  visit(Role{"attn_output.bias", kVec, kEmbd, kOne, kAny, kAttended}, parts.attn_out_b...);
  visit(Role{"attn_q_norm.weight", kVec, kQueryNorm, kOne, kAny, kAtt}, parts.attn_q_norm...);
  visit(Role{"attn_k_norm.weight", kVec, kKeyNorm, kOne, kAny, kAtt}, parts.attn_k_norm...);
  visit(Role{"attn_gate.weight", kMat, kEmbd, kGates, kMul, LayerModule::kGated},
        parts.attn_gate...);
  visit(Role{"post_attention_norm.weight", kVec, kEmbd, kOne, kAny, kAtt}, parts.attn_post_norm...);
  visit(Role{"post_ffw_norm.weight", kVec, kEmbd}, parts.ffn_post_norm...);
  visit(Role{"attn_rel_b.weight", kVec, kHeads, kBuckets, kAny, kAtt}, parts.attn_relative...);
  visit(Role{"attn_sinks.weight", kVec, kHeads, kOne, kAny, LayerModule::kSinks},
        parts.attn_sinks...);
  tensor_roles_internal::ForEachStreamRole(visit, parts...);
  tensor_roles_internal::ForEachNgramRole(visit, parts...);
  tensor_roles_internal::ForEachLatentRole(visit, parts...);
  tensor_roles_internal::ForEachPooledRole(visit, parts...);
  tensor_roles_internal::ForEachStateRole(visit, parts...);
  tensor_roles_internal::ForEachFeedForwardRole(visit, parts...);
  tensor_roles_internal::ForEachPredictingRole(visit, parts...);
}

// Visits the roles outside the layers, with their member of each of `parts`.
template <class Visit, class... Parts>
constexpr void ForEachModelRole(Visit&& visit, Parts&... parts) {
  using enum Dim;
  constexpr auto kMat = TensorKind::kMatrix;
  constexpr auto kVec = TensorKind::kVector;
  constexpr auto kMul = TensorUse::kOnlyMultiplied;
  constexpr auto kHost = TensorUse::kByHost;
  using Role = TensorRole;
  visit(Role{"token_embd.weight", kMat, kEmbd, kVocab, kHost}, parts.token_embd...);
  visit(Role{"output.weight", kMat, kEmbd, kVocab, kMul}, parts.output...);
  visit(Role{"output.bias", kVec, kVocab}, parts.output_b...);
  visit(Role{"output_norm.weight", kVec, kEmbd, kOne, TensorUse::kAny, LayerModule::kEvery,
             "token_embd_norm.weight"},
        parts.output_norm...);
  visit(Role{"output_norm.bias", kVec, kEmbd}, parts.output_norm_b...);
  visit(Role{"encoder_norm.weight", kVec, kEmbd}, parts.encoder_norm...);
  visit(Role{"rope_freqs.weight", kVec, kHalfRotary}, parts.rope_freqs...);
  visit(Role{"rope_factors_long.weight", kVec, kHalfRotary}, parts.rope_factors_long...);
  visit(Role{"rope_factors_short.weight", kVec, kHalfRotary}, parts.rope_factors_short...);
  visit(Role{"output_hc_norm.weight", kVec, kStreams}, parts.head_streams_norm...);
  visit(Role{"output_hc_down.weight", kMat, kStreams, kStreamLowRank, kMul},
        parts.head_streams_down...);
  visit(Role{"output_hc_up.weight", kMat, kStreamLowRank, kStreams, kMul},
        parts.head_streams_up...);
  visit(Role{"output_hc_fn.weight", kMat, kStreams, kStreamNumber, kMul}, parts.head_streams...);
  visit(Role{"output_hc_base.weight", kVec, kStreamNumber}, parts.head_streams_b...);
  visit(Role{"output_hc_scale.weight", kVec, kOne}, parts.head_streams_scale...);
  visit(Role{"per_layer_token_embd.weight", kMat, kNgramValues, kNgramRows, TensorUse::kOnDisk},
        parts.ngram_table...);
}

// A member that is not visited would be found in no file and never loaded.
namespace tensor_roles_internal {
constexpr size_t CountLayerRoles() {
  size_t count = 0;
  LayerRoles<char> roles;
  ForEachLayerRole([&](const TensorRole&, char&) { ++count; }, roles);
  return count;
}
constexpr size_t CountModelRoles() {
  size_t count = 0;
  ModelRoles<char> roles;
  ForEachModelRole([&](const TensorRole&, char&) { ++count; }, roles);
  return count;
}
static_assert(CountLayerRoles() == sizeof(LayerRoles<char>));
static_assert(CountModelRoles() == sizeof(ModelRoles<char>));
}  // namespace tensor_roles_internal

// All roles of a model: those outside the layers and those of each layer.
template <class T, class Layer = LayerRoles<T>>
struct ModelTree : ModelRoles<T> {
  std::vector<Layer> layers;
};

// Calls visit(role, member) for every role of a ModelTree, layer by layer.
template <class Visit, class Tree>
void ForEachRole(Visit&& visit, Tree& tree) {
  ForEachModelRole(visit, tree);
  for (auto& layer : tree.layers) ForEachLayerRole(visit, layer);
}

}  // namespace moestro
