// SPDX-License-Identifier: MIT
// The sizes of a Mixture-of-Experts model: those of well-known ones by name, or a user's own.
// Plain values; no thread rule.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moestro {

struct SynthShape {
  std::string name;  // as in --shape
  std::string arch;  // GGUF architecture, one of Families()
  uint32_t layers = 0;
  uint32_t experts = 0;
  uint32_t used = 0;          // experts per token
  uint32_t embd = 0;          // width of the hidden state
  uint32_t ff = 0;            // width of one expert
  uint32_t shared_ff = 0;     // width of the shared expert; 0: none
  uint32_t dense_layers = 0;  // the first ones have no experts
  uint32_t dense_ff = 0;      // width of their feed-forward block
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t rotated = 0;  // dimensions of a head; 0: all
  uint32_t window = 0;   // positions that some layers attend to, as the family has it; 0: all
  // Layers with a window that have heads of their own.
  uint32_t window_every = 0;  // the last of so many layers attends to all positions
  uint32_t window_kv_heads = 0;
  uint32_t window_head_dim = 0;
  // Latent attention: heads share a key of kv_latent and `rotated` values, and `rotated` of a
  // query's head_dim values are turned.
  uint32_t kv_latent = 0;     // 0: another attention
  uint32_t query_latent = 0;  // queries are projected by way of so many values; 0: at once
  uint32_t value_dim = 0;     // of a head
  bool is_joined = false;     // one matrix for keys and values of the latent, as in older files
  // An indexer that chooses positions.
  uint32_t indexer_heads = 0;  // 0: all positions are attended to
  uint32_t indexer_dim = 0;
  uint32_t top_k = 0;
  uint32_t indexer_every = 0;  // layers of so many share one indexer; 0: each has its own
  uint32_t pool = 0;           // positions that are chosen together; 0: each alone
  uint32_t last_pools = 0;     // pools of the top_k that are always chosen, the last ones
  // Attention to the last positions and to pools, which query_latent and indexer_* are of, too.
  uint32_t head_groups = 0;   // whose results are projected alone; 0: another attention
  uint32_t group_out = 0;     // to so many values
  uint32_t pools_from = 0;    // layers before that one have no pools
  uint32_t token_layers = 0;  // of which a table of tokens names the experts; the first ones
  uint32_t streams = 0;       // residual streams; 0: one
  uint32_t stream_rank = 0;   // of matrices that mix streams; 0: Sinkhorn's iterations do
  float yarn_log = 0;         // rope.scaling.yarn_log_multiplier; 0: not written
  bool has_sigmoid = false;   // where files of the family have routers of both kinds, with a bias
  float weights_scale = 0;    // expert_weights_scale with expert_weights_norm; 0: the family's
  // Limits of gates and up projections: of experts, and of the shared expert or the dense block.
  float limit_expert = 0;  // 0: no limits
  float limit_shared = 0;
  uint32_t limited_from = 0;  // layers before that one have no limits
  uint32_t groups = 0;        // of experts; 0: no groups
  uint32_t groups_used = 0;
  // Layers with a state instead of attention.
  uint32_t attention_every = 0;  // each so many-th layer has attention; 0: all have
  // Pattern of models whose layers are a mixer or experts alone: a letter for each layer, M a
  // state, * attention, E experts. A pattern shorter than the model repeats. Empty: layers have
  // both.
  std::string pattern = {};
  // Layers of the encoder, if the model has one; behind them are the decoder's blocks, two layers
  // each (model/read_spec.h). The second of so many blocks of a stack has experts.
  uint32_t encoder_layers = 0;  // 0: no encoder
  uint32_t sparse_every = 0;
  uint32_t latent = 0;  // width of experts' inputs and results; 0: that of the hidden state
  uint32_t state_heads = 0;
  uint32_t state_key_heads = 0;  // key heads, shared by the value heads; for Mamba-2 the groups
  uint32_t state_size = 0;       // values of a key, of Mamba-2
  uint32_t state_dim = 0;        // of a head
  uint32_t taps = 0;             // inputs of the convolution: this position's and those before it
  // A table of n-grams.
  uint32_t ngram_most = 0;   // tokens of the longest n-gram; 0: no table
  uint32_t ngram_heads = 0;  // rows of each length of n-grams
  uint32_t ngram_values = 0;
  uint64_t ngram_rows = 0;  // of each head
  uint32_t ngram_layer = 0;
  uint32_t ngram_taps = 0;
  uint32_t predicting = 0;   // layers behind `layers` that predict further tokens; 0 or 1
  bool has_qk_norm = false;  // the file has the norms, in families whose files may lack them
  bool is_tied = false;      // token_embd serves as output matrix, too
  uint32_t vocab = 0;
  uint32_t context = 0;       // trained context
  uint32_t orig_context = 0;  // context before rope scaling; 0 where it is not scaled
  float yarn_factor = 0;      // factor of YaRN scaling; 0: another kind
  float rope_base = 0;
  float rms_eps = 0;
  double billions = 0;  // published number of weights, in 10^9; 0: a shape of the user's own

  bool has_state(uint32_t layer) const {
    if (!pattern.empty()) return part(layer) == 'M';
    return attention_every > 0 && (layer + 1) % attention_every != 0;
  }
  bool has_attention(uint32_t layer) const {
    return pattern.empty() ? !has_state(layer) : part(layer) == '*';
  }
  // REQUIRES: the model has an encoder.
  bool is_target_alone(uint32_t layer) const {
    return layer >= encoder_layers && (layer - encoder_layers) % 2 == 0;
  }
  bool has_experts(uint32_t layer) const {
    if (encoder_layers > 0) {
      const uint32_t block = layer < encoder_layers ? layer : (layer - encoder_layers) / 2;
      return !is_target_alone(layer) && block % sparse_every == 1 % sparse_every;
    }
    return pattern.empty() ? layer >= dense_layers : part(layer) == 'E';
  }
  // Whether the layer has a window. REQUIRES: window_every > 0.
  bool has_window(uint32_t layer) const { return (layer + 1) % window_every != 0; }
  bool shares_indexer(uint32_t layer) const {
    const uint32_t number = attention_every > 0 ? layer / attention_every : layer;
    return indexer_every > 0 && number % indexer_every != 0;
  }
  // Positions of a pool. REQUIRES: head_groups > 0.
  uint32_t pool_of(uint32_t layer) const {
    constexpr uint32_t kFew = 4;
    constexpr uint32_t kMany = 128;
    if (layer < pools_from) return 0;
    return (layer - pools_from) % 2 == 0 ? kFew : kMany;
  }
  // Rows that a token names.
  uint32_t ngram_names() const { return ngram_most > 0 ? (ngram_most - 1) * ngram_heads : 0; }
  uint32_t expert_embd() const { return latent > 0 ? latent : embd; }
  uint32_t rope_dim() const { return rotated > 0 ? rotated : head_dim; }
  uint64_t q_width() const { return uint64_t{heads} * head_dim; }
  // The layer's letter. REQUIRES: `pattern` is not empty.
  char part(uint32_t layer) const { return pattern[layer % pattern.size()]; }
};

std::span<const SynthShape> KnownShapes();
// Parts of KnownShapes(): models with latent attention, and with an encoder.
std::span<const SynthShape> LatentShapes();
std::vector<SynthShape> EncoderShapes();

// Fails with kUsage on an unknown name; the message lists the known ones.
Result<SynthShape> FindShape(std::string_view name);
// The shape with another number of layers. Limits of layers that it no longer has are left out.
SynthShape WithLayers(SynthShape shape, uint32_t layers);

// Checks that a model of the shape can exist and llama.cpp would load it. Fails with
// kInvalidRequest, naming the number and its limits.
Status CheckShape(const SynthShape& shape);

}  // namespace moestro
