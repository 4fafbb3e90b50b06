// SPDX-License-Identifier: MIT
// Properties of a model, as plain values. model/read_spec.cc fills them from GGUF metadata and the
// model's family, and has checked every value: all counts are positive, products fit, heads divide
// evenly.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/ids.h"
#include "core/pool_rule.h"

namespace moestro {

enum class RopePairs : uint8_t {
  kAdjacent,  // dimensions (2i, 2i+1)
  kHalves,    // dimensions (i, i + n/2)
};

enum class QkNorm : uint8_t {
  kNone,
  kPerHead,      // RMS over each head, before rotation
  kAfterRope,    // RMS over each head, after rotation
  kWholeVector,  // RMS over all heads together, before rotation
};

// Gate that multiplies attention's values before they are projected back.
enum class OutputGate : uint8_t {
  kNone,
  kWithQuery,  // sigmoid; the query's matrix gives a head's query and then its gate
  kSigmoid,    // a matrix of its own gives a gate for each value
  kSoftplus,   // a matrix of its own gives one for each value, or for each head
};

// Variants of attention that are not sizes. Biases and sinks follow from the tensors.
struct AttentionForm {
  RopePairs rope_pairs = RopePairs::kHalves;
  QkNorm qk_norm = QkNorm::kNone;  // where the file has the norms
  OutputGate output_gate = OutputGate::kNone;
  // The query is scaled after rotation instead of the attention scores.
  bool scale_query = false;
  // Rope factors come in a long and a short set, chosen by the context size.
  bool long_short_factors = false;
  bool norms_values = false;  // RMS of each head's values, without a weight
  bool operator==(const AttentionForm&) const = default;
};

// Positions that a row attends to, and the rows that their keys are of.
enum class AttentionReach : uint8_t {
  kPast,    // its own position and those before
  kSource,  // a row of the source: all of the source
  kAcross,  // a row of the target: all of the source, with keys of the encoder's results
};

// A learned number for each head and range of distances is added to scores.
// Source: C. Raffel et al., "Exploring the Limits of Transfer Learning", 2020, section 2.1.
struct RelativeBias {
  uint32_t n_buckets = 0;     // ranges of distances
  uint32_t max_distance = 0;  // from this distance on all are one range
  bool is_two_sided = false;  // half of the ranges are for keys behind the query
  uint16_t layer = 0;         // layer that has the tensor
  bool operator==(const RelativeBias&) const = default;
};

// Function that joins the gate g and the up projection u of a feed-forward block.
enum class Activation : uint8_t {
  kSwiglu,       // silu(g) * u
  kSwigluGate,   // the same, but limits (FeedForwardSpec) are those of g, not of silu(g)
  kGeglu,        // gelu(g) * u, gelu by its tanh formula
  kSwigluOai,    // g' * sigmoid(1.702 g') * (u' + 1), g' = min(g, 7), u' = u within -7 to 7
  kReluSquared,  // max(u, 0)^2; blocks have no gate matrix
  kRelu,         // max(u, 0); blocks have no gate matrix
};

constexpr bool HasGate(Activation activation) {
  return activation != Activation::kReluSquared && activation != Activation::kRelu;
}

// Form of an expert: down(activation(gate x, up x)). Biases follow from the tensors.
struct ExpertForm {
  Activation activation = Activation::kSwiglu;
};

// Function that turns router logits into probabilities.
enum class Gating : uint8_t {
  kSoftmax,          // over all experts
  kSigmoid,          // each expert for itself
  kSoftmaxOfChosen,  // logits choose, the softmax is over the K chosen
  kSoftplusRoot,     // sqrt(log(1 + e^x)) of each expert's logit
};

struct RopeSpec {
  uint32_t n_dims = 0;  // rotated dimensions of each head
  float freq_base = 10000.0F;
  float freq_scale = 1.0F;   // 1 / linear or YaRN factor
  float ext_factor = 0.0F;   // 1 with YaRN
  float attn_factor = 1.0F;  // magnitude; phimoe's long-context factor goes here too
  float beta_fast = 32.0F;
  float beta_slow = 1.0F;
  uint32_t original_context = 0;  // context the model was trained with before scaling
  bool operator==(const RopeSpec&) const = default;
};

struct RouterSpec {
  uint32_t n_expert = 0;
  uint32_t n_used = 0;  // K: experts per token
  Gating gating = Gating::kSoftmax;
  uint32_t n_group = 1;       // experts come in groups of consecutive ids; 1: no groups
  uint32_t n_group_used = 1;  // only the best groups' experts can be chosen
  bool renormalise = false;   // weights of the K chosen divided by their sum
  float weight_scale = 1.0F;  // applied last
  bool operator==(const RouterSpec&) const = default;
};

// An indexer's score of a pool of consecutive positions.
enum class PoolScore : uint8_t {
  // By a key of the pool, the mean of its positions' keys, weighed value by value by a softmax of
  // gates. Heads' scores are summed, with weights.
  kGatedKeys,
  // By the mean of the keys, normed and turned by the first of the positions. Heads' scores are
  // summed.
  kMeanKeys,
  // The largest of its positions' scores. Each head chooses on its own, for the heads of attention
  // that share keys.
  kBestPosition,
};

// Chooses the positions that a row attends to, by keys of its own; or pools of consecutive
// positions (PoolRule). Sources: DeepSeek-AI, "DeepSeek-V3.2", 2025, section 2.1; of each head's
// own choice: MiniMax, "MiniMax Sparse Attention", 2026.
struct IndexerSpec {
  uint32_t n_head = 0;
  uint32_t head_dim = 0;  // of its queries and of its one key; at least n_turned
  uint32_t top_k = 0;     // positions that are chosen; a multiple of n_pool
  uint32_t n_pool = 1;    // positions of a pool
  // The last so many pools are always chosen, full or not, and count among top_k; 0: a row attends
  // to the positions behind the last full pool beside its top_k.
  uint32_t n_last_pools = 0;
  PoolScore score = PoolScore::kGatedKeys;
  bool is_idle = false;  // all positions are attended to; the file has the tensors in vain
  float eps = 1e-6F;     // of the norm of keys
  RopePairs rope_pairs = RopePairs::kHalves;
  // The layer has no indexer and uses the positions that an earlier layer chose.
  bool is_shared = false;

  bool has_pools() const { return n_pool > 1; }
  PoolRule rule() const {
    return {.n_pool = n_pool, .n_chosen = top_k / n_pool - n_last_pools, .n_last = n_last_pools};
  }
  // Choices of a row: one for all heads of attention, or one for those that share a key.
  uint32_t n_choices() const { return score == PoolScore::kBestPosition ? n_head : 1; }
  // Values that are remembered of a position: the key, and for gated pools the gates behind it.
  uint32_t n_remembered() const {
    return has_pools() && score == PoolScore::kGatedKeys ? 2 * head_dim : head_dim;
  }
  bool operator==(const IndexerSpec&) const = default;
};

// A mixer moves information between the positions of a sequence. Attention remembers a key and a
// value of each position.
struct AttentionSpec {
  AttentionForm form = {};
  uint32_t n_head = 0;
  uint32_t n_head_kv = 0;  // divides n_head
  uint32_t head_dim_k = 0;
  uint32_t head_dim_v = 0;
  std::optional<RopeSpec> rope = {};  // nullopt: heads are not turned by their position
  bool has_rope_factors = true;       // by rope_freqs, if the file has it
  // Values are keys before norm and rotation, and no matrix makes values.
  bool values_are_keys = false;
  uint32_t n_gate = 0;     // gates of a row that have a matrix of their own; 0: none
  uint32_t window = 0;     // a row attends to this many last positions; 0: all
  float scale = 0.0F;      // of scores; 0: one over the root of head_dim_k
  float clamp_kqv = 0.0F;  // limit of queries, keys and values; 0: none
  AttentionReach reach = AttentionReach::kPast;
  std::optional<RelativeBias> relative = {};  // nullopt: scores do not depend on distances
  std::optional<IndexerSpec> indexer = {};    // of pools; nullopt: rows attend to all positions

  uint32_t n_embd_q() const { return n_head * head_dim_k; }
  // Rows of the query's matrix: queries, and their gates where the matrix holds both.
  uint32_t n_query_rows() const {
    return form.output_gate == OutputGate::kWithQuery ? 2 * n_embd_q() : n_embd_q();
  }
  uint32_t n_embd_k() const { return n_head_kv * head_dim_k; }
  bool chooses() const { return indexer && !indexer->is_idle; }
  // Values of a cell's keys: those of heads, and of the indexer.
  uint32_t n_cell_keys() const { return n_embd_k() + (chooses() ? indexer->n_remembered() : 0); }
  uint32_t n_embd_v() const { return n_head_kv * head_dim_v; }
  uint32_t n_embd_out() const { return n_head * head_dim_v; }
  bool operator==(const AttentionSpec&) const = default;
};

// Attention that remembers one vector of each position for all heads: a latent, which is key and
// value at once, and behind it the part of a key that is turned by its position. Queries are
// brought to the latent's width, and so are values brought back, by a matrix of each head.
// Source: DeepSeek-AI, "DeepSeek-V2", 2024, sections 2.1 and B.
struct LatentAttentionSpec {
  uint32_t n_head = 0;
  uint32_t n_latent = 0;
  uint32_t n_turned = 0;  // values of a key, and of a head's query, that are turned
  uint32_t n_plain = 0;   // values of a head's query that are not turned: they multiply the latent
  uint32_t head_dim_v = 0;      // values that a head gives
  uint32_t n_query_latent = 0;  // queries are projected by way of so many values; 0: at once
  RopePairs rope_pairs = RopePairs::kAdjacent;
  std::optional<RopeSpec> rope = {};  // nullopt: nothing is turned
  float scale = 0.0F;                 // of scores
  // One matrix holds what brings queries to the latent and values back (older files).
  bool is_joined = false;
  bool has_gates = false;  // what each head gives is weighed by a sigmoid of the head's own
  std::optional<IndexerSpec> indexer = {};  // nullopt: rows attend to all positions

  uint32_t n_key() const { return n_latent + n_turned; }
  bool has_own_indexer() const { return indexer && !indexer->is_shared; }
  bool has_own_pools() const { return has_own_indexer() && indexer->has_pools(); }
  uint32_t n_query() const { return n_head * (n_plain + n_turned); }
  uint32_t n_embd_out() const { return n_head * head_dim_v; }
  bool operator==(const LatentAttentionSpec&) const = default;
};

// Attention with one key of a position for all heads, which is the value, too: of the last
// positions and, in some layers, of pools of all earlier ones. A pool's key is a mean of what a
// matrix gives of its positions, weighed value by value by a softmax of gates, normed and turned by
// the pool's first position. Pools count once they are full. Values of results that keys have
// turned are turned back, and groups of heads are projected on their own before all are together.
// Source: DeepSeek-AI, "DeepSeek-V4", 2026, section 2.
struct PooledAttentionSpec {
  uint32_t n_head = 0;
  uint32_t head_dim = 0;        // of queries, keys and results; their last rope.n_dims are turned
  uint32_t n_query_latent = 0;  // queries are projected by way of so many values
  uint32_t window = 0;          // positions whose own keys a row attends to, its own included
  RopePairs rope_pairs = RopePairs::kAdjacent;
  RopeSpec rope = {};
  uint32_t n_group = 0;  // of heads, which divides n_head
  uint32_t n_out = 0;    // values that a group's results are projected to
  uint32_t n_pool = 0;   // positions of a pool; 0: the layer has no pools
  // A pool's key is made of the positions of the pool before it, too, with values and gates of
  // their own.
  bool overlaps = false;
  // Chooses top_k pools, whose keys for it are made as those of attention are; nullopt: rows attend
  // to all pools.
  std::optional<IndexerSpec> indexer = {};

  // Values and gates of a position, with those for the pool behind its own.
  uint32_t n_shares() const { return overlaps ? 2 : 1; }
  uint32_t n_query() const { return n_head * head_dim; }
  uint32_t n_of_group() const { return n_head / n_group * head_dim; }
  // F32 values that are kept of pools that are not full: for each value of a key, and each pool
  // that a position counts in, the largest gate, and sums of weights and of weighed values.
  static constexpr uint32_t kSums = 3;
  uint32_t state_values() const {
    if (n_pool == 0) return 0;
    return kSums * n_shares() * (head_dim + (indexer ? indexer->head_dim : 0));
  }
  bool operator==(const PooledAttentionSpec&) const = default;
};

// Rule for the key head that a value head uses.
enum class HeadSharing : uint8_t {
  kConsecutive,  // value head j uses key head j / (n_head_v / n_head_k)
  kInTurn,       // value head j uses key head j % n_head_k
};

// A gated delta net remembers a matrix for each value head and the last inputs of its convolution.
// Source: S. Yang, J. Kautz, A. Hatamizadeh, "Gated Delta Networks", 2024; of each value's decay:
// Kimi Team, "Kimi Linear", 2025.
struct DeltaNetSpec {
  uint32_t n_head_k = 0;
  uint32_t n_head_v = 0;  // a multiple of n_head_k
  uint32_t head_dim = 0;  // of keys and of values; a multiple of 32
  uint32_t n_taps = 0;    // inputs of the convolution: this position's and those before it
  HeadSharing sharing = HeadSharing::kConsecutive;
  // Each value of a key decays on its own, and results are gated by a sigmoid: else a head decays
  // as one, and the gate is silu.
  bool decays_values = false;
  bool has_sigmoid_gates = false;  // gates are a sigmoid although a head decays as one
  // Where values decay on their own: one matrix each gives decays and gates, else two do, by way of
  // head_dim values.
  bool has_whole_gates = false;
  // The logarithm of the smallest decay, which is below 0: decays are exp(bound * sigmoid(a * x)).
  // 0: they have no bound and are exp(a * softplus(x)).
  float decay_bound = 0.0F;
  // The rates of a bounded decay, a, are those of the file times -1: these are below 0.
  bool has_negative_rates = false;
  float key_eps = 0.0F;  // of the norm of keys and queries; 0: that of the model's norms

  uint32_t n_decays() const { return decays_values ? n_head_v * head_dim : n_head_v; }
  // Results of the first matrices of decays and gates, where values decay on their own.
  uint32_t n_gate_inputs() const { return has_whole_gates ? n_head_v * head_dim : head_dim; }
  uint32_t n_keys() const { return n_head_k * head_dim; }
  uint32_t n_values() const { return n_head_v * head_dim; }
  // Channels of the convolution: queries, keys, values.
  uint32_t n_convolved() const { return 2 * n_keys() + n_values(); }
  uint32_t inputs_values() const { return (n_taps - 1) * n_convolved(); }
  uint32_t matrix_values() const { return head_dim * head_dim; }
  uint32_t state_values() const { return inputs_values() + n_head_v * matrix_values(); }
  bool operator==(const DeltaNetSpec&) const = default;
};

// A short convolution remembers its last inputs: y = conv(b * x), and the result is c * y.
struct ShortConvSpec {
  uint32_t n_channels = 0;
  uint32_t n_taps = 0;  // inputs of the convolution: this position's and those before it

  uint32_t state_values() const { return (n_taps - 1) * n_channels; }
  bool operator==(const ShortConvSpec&) const = default;
};

// Mamba-2 remembers a matrix for each head and the last inputs of its convolution.
// Source: T. Dao, A. Gu, "Transformers are SSMs", 2024.
struct Mamba2Spec {
  uint32_t n_head = 0;
  uint32_t head_dim = 0;  // a multiple of 32
  uint32_t n_group = 0;   // of heads that share keys (B) and queries (C); divides n_head
  uint32_t n_state = 0;   // values of a key
  uint32_t n_taps = 0;    // inputs of the convolution: this position's and those before it

  uint32_t n_inner() const { return n_head * head_dim; }
  // Channels of the convolution: values, keys, queries.
  uint32_t n_convolved() const { return n_inner() + 2 * n_group * n_state; }
  // Projections of the input: gates, the convolution's channels, a step of each head.
  uint32_t n_projected() const { return n_inner() + n_convolved() + n_head; }
  uint32_t inputs_values() const { return (n_taps - 1) * n_convolved(); }
  uint32_t matrix_values() const { return head_dim * n_state; }
  uint32_t state_values() const { return inputs_values() + n_head * matrix_values(); }
  bool operator==(const Mamba2Spec&) const = default;
};

// A mixer of a test remembers a state that every position changes and that cannot be cut back.
struct StateSpec {
  std::string kind;       // name of the mixer that computes the state
  uint32_t n_values = 0;  // F32 values of the state of one sequence
  bool operator==(const StateSpec&) const = default;
};

// A layer that is a feed-forward part alone.
struct NoMixerSpec {
  bool operator==(const NoMixerSpec&) const = default;
};

using MixerSpec = std::variant<AttentionSpec, LatentAttentionSpec, PooledAttentionSpec,
                               DeltaNetSpec, ShortConvSpec, Mamba2Spec, StateSpec, NoMixerSpec>;

// Feed-forward part of a layer, computed for each position alone. A width of 0: the layer lacks
// that block.
struct FeedForwardSpec {
  uint32_t n_ff_expert = 0;  // of a routed expert
  uint32_t n_ff_shared = 0;  // of the shared expert, beside routed ones
  uint32_t n_ff_dense = 0;   // of the dense block, in a layer without experts or beside experts
  // Routed experts take and give so many values, which two dense matrices project; 0: n_embd.
  uint32_t n_latent = 0;
  // Limits of Activation::kSwiglu: silu(g) is at most the limit, or of kSwigluGate g, and u within
  // it on both sides; 0: none. Of routed experts, and of the shared expert or the dense block.
  float limit_expert = 0.0F;
  float limit_shared = 0.0F;
  // A table names a token's experts; the router weighs them alone.
  bool has_token_experts = false;

  bool has_experts() const { return n_ff_expert > 0; }
  // false: the layer is a mixer alone.
  bool is_there() const { return n_ff_expert > 0 || n_ff_dense > 0; }
  bool operator==(const FeedForwardSpec&) const = default;
};

// A table of n-grams' rows: the last tokens of a row of a step name rows of the table, which one
// layer takes in. A hash of 2 tokens, of 3 and so on up to n_most gives `heads_of_each` rows each.
// The table stays in its file, since it is larger than everything else and few rows are needed.
// Source: DeepSeek-AI, "Conditional Memory via Scalable Lookup", 2026, section 2.
struct NgramSpec {
  uint32_t n_most = 0;                 // tokens of the longest n-gram; at least 2
  uint32_t heads_of_each = 0;          // rows that the n-grams of one length name
  uint32_t n_values = 0;               // of a row
  uint64_t n_rows = 0;                 // of the table
  uint32_t n_taps = 0;                 // inputs of the layer's convolution, n_most positions apart
  Token end = 0;                       // ends a text: no n-gram reaches beyond
  std::vector<uint64_t> factors = {};  // [n_most]: of tokens in the hash, the last token's first
  struct Head {
    uint64_t first = 0;  // the head's rows are [first, first + count)
    uint64_t count = 0;
    bool operator==(const Head&) const = default;
  };
  std::vector<Head> heads = {};  // by length, [n_most - 1][heads_of_each]

  uint32_t n_heads() const { return static_cast<uint32_t>(heads.size()); }
  uint32_t n_embd() const { return n_heads() * n_values; }  // values of a token's rows together
  // Positions behind its own that the convolution reaches.
  uint32_t n_history() const { return (n_taps - 1) * n_most; }
  bool operator==(const NgramSpec&) const = default;
};

struct LayerSpec {
  MixerSpec mixer;
  FeedForwardSpec feed_forward = {};
  // F32 values that the layer's n-grams keep of a sequence, behind its mixer's state; 0: the layer
  // takes in no n-grams (ModelSpec::ngrams).
  uint32_t ngram_values = 0;
  // The layer predicts the token after the next from the last layer's output and the next token.
  bool predicts = false;

  // nullptr: the layer has another mixer.
  const AttentionSpec* attention() const { return std::get_if<AttentionSpec>(&mixer); }
  const LatentAttentionSpec* latent_attention() const {
    return std::get_if<LatentAttentionSpec>(&mixer);
  }
  const PooledAttentionSpec* pooled_attention() const {
    return std::get_if<PooledAttentionSpec>(&mixer);
  }
  const DeltaNetSpec* delta_net() const { return std::get_if<DeltaNetSpec>(&mixer); }
  const ShortConvSpec* short_conv() const { return std::get_if<ShortConvSpec>(&mixer); }
  const Mamba2Spec* mamba2() const { return std::get_if<Mamba2Spec>(&mixer); }
  const StateSpec* state() const { return std::get_if<StateSpec>(&mixer); }
  bool attends_to_source() const {
    return attention() != nullptr && attention()->reach == AttentionReach::kAcross;
  }
  bool has_mixer() const { return !std::holds_alternative<NoMixerSpec>(mixer); }
  bool operator==(const LayerSpec&) const = default;
};

// Rule by which rows mix several residual streams.
enum class StreamMixing : uint8_t {
  // A matrix of a row's streams gives weights: of the streams in a half layer's input, of the
  // half's result in each stream, and of each stream in each, which Sinkhorn's iterations make
  // doubly stochastic. The head's input is the mean of the streams, or a mix like a half layer's.
  kSinkhorn,
  // Each stream is normed. A half layer's input is the mean of the streams, each value weighed by a
  // gate, which two matrices give by way of n_low_rank values; a third gives weights of the half's
  // result in each stream, which is added. The head's input is such a mean, too.
  kLowRank,
};

// Several residual streams instead of one: each half of a layer, its mixer and its feed-forward
// part, computes with one mix of a row's streams, and each stream takes in the result. Sources: D.
// Zhu et al., "Hyper-Connections", 2024; Z. Xie et al., "mHC", 2025.
struct StreamsSpec {
  StreamMixing mixing = StreamMixing::kSinkhorn;
  uint32_t n_streams = 0;
  uint32_t n_iterations = 0;  // of kSinkhorn, at least 1
  float eps = 0.0F;           // of kSinkhorn
  bool mixes_head = false;    // of kSinkhorn: the head's input is a mix with weights of its own
  uint32_t n_low_rank = 0;    // of kLowRank

  // Weights of a row in a half layer: of kSinkhorn those of its input, of its result, of streams in
  // streams; of kLowRank those of its result.
  uint32_t n_weights() const {
    return mixing == StreamMixing::kLowRank ? n_streams : n_streams * (2 + n_streams);
  }
  static constexpr uint32_t kScales = 3;  // factors, one for each of these kinds
  bool operator==(const StreamsSpec&) const = default;
};

// Encoder of a model that has an encoder and a decoder. A sequence is a source, which ends with a
// token that is not in it otherwise, and behind it the target. Rows of the source go through the
// encoder's layers alone, all of a sequence in one step, and rows of the target through the
// decoder's.
struct EncoderSpec {
  uint32_t n_layer = 0;    // the model's first layers; those behind them are the decoder's
  Token source_end = 0;    // the source's last token
  Token target_begin = 0;  // the target's first one
  uint32_t capacity = 0;  // rows of a source that the model's config gives an expert; 0: any number
  bool operator==(const EncoderSpec&) const = default;
};

// Number of tokens of the source; 0: `tokens` has no end of a source.
inline uint32_t SourceLength(std::span<const Token> tokens, Token source_end) {
  const auto end = std::ranges::find(tokens, source_end);
  return end == tokens.end() ? 0 : static_cast<uint32_t>(end - tokens.begin()) + 1;
}

struct ModelSpec {
  std::string arch_name;  // as in general.architecture
  std::string name;       // general.name, may be empty
  // At least one with experts. A layer that predicts further tokens, where it is asked for, is the
  // last one.
  std::vector<LayerSpec> layers;
  // Layers of the file behind `layers` that predict further tokens. They are not evaluated.
  uint32_t n_next_token_layers = 0;
  uint32_t n_embd = 0;
  uint32_t n_vocab = 0;
  // The sum of a layer's experts, or its dense block's result, is normed before it is added.
  bool has_post_norms = false;
  uint32_t n_ctx_train = 0;
  float rms_eps = 1e-5F;
  float embedding_scale = 1.0F;  // of embeddings
  float residual_scale = 1.0F;   // factor of the results that mixers and feed-forward blocks add
  float logit_scale = 1.0F;      // divides logits
  float logit_cap = 0.0F;        // logits are cap * tanh(logits / cap); 0: they have no cap
  bool tied_output = false;      // token_embd serves as output
  ExpertForm experts;
  RouterSpec router;
  std::optional<EncoderSpec> encoder = {};  // nullopt: every row goes through every layer
  std::optional<NgramSpec> ngrams = {};     // nullopt: no layer takes in n-grams
  std::optional<StreamsSpec> streams = {};  // nullopt: one residual stream

  uint32_t n_layer() const { return static_cast<uint32_t>(layers.size()); }
  bool predicts() const { return !layers.empty() && layers.back().predicts; }
  // Layers that every row goes through: all but one that predicts further tokens.
  uint32_t n_main_layer() const { return n_layer() - (predicts() ? 1 : 0); }
  bool has_experts(size_t layer) const { return layers[layer].feed_forward.has_experts(); }
  // Number of layers with experts before `layer`. If `layer` has experts, that is its number among
  // them.
  uint32_t expert_layers_before(size_t layer) const {
    return static_cast<uint32_t>(
        std::count_if(layers.begin(), layers.begin() + static_cast<ptrdiff_t>(layer),
                      [](const LayerSpec& l) { return l.feed_forward.has_experts(); }));
  }
  uint32_t n_expert_layers() const { return expert_layers_before(layers.size()); }
  uint32_t n_main_expert_layers() const { return expert_layers_before(n_main_layer()); }
  // Layers whose experts tokens name; they are the first ones with experts.
  uint32_t n_token_layers() const {
    return static_cast<uint32_t>(std::ranges::count_if(
        layers, [](const LayerSpec& l) { return l.feed_forward.has_token_experts; }));
  }
  // Values of a routed expert's input and of its result.
  uint32_t n_embd_expert() const {
    const uint32_t latent = MostOf(&FeedForwardSpec::n_latent);
    return latent > 0 ? latent : n_embd;
  }
  // Values of a row's residual streams together.
  uint32_t n_residual() const { return streams ? streams->n_streams * n_embd : n_embd; }
  // Whether the experts' sum of a layer is projected or normed before it is added, or added to
  // several streams, so that the next layer begins with that work.
  bool ends_in_next(size_t layer) const {
    return has_experts(layer) &&
           (has_post_norms || layers[layer].feed_forward.n_latent > 0 || streams);
  }
  // Whether something is added to experts' results beside the residual: a shared expert's or a
  // dense block's.
  bool has_shared_result(size_t layer) const {
    const FeedForwardSpec& its = layers[layer].feed_forward;
    return its.has_experts() && (its.n_ff_shared > 0 || its.n_ff_dense > 0);
  }
  // Whether the shared expert's or dense block's result is projected or normed, so that the next
  // layer begins with that work and adds the result.
  bool adds_shared_in_next(size_t layer) const {
    const FeedForwardSpec& its = layers[layer].feed_forward;
    return has_shared_result(layer) && (its.n_latent > 0 || its.n_ff_dense > 0);
  }
  // Whether `is_so`, one of the functions above, is true for some layer.
  bool any_layer(bool (ModelSpec::*is_so)(size_t layer) const) const {
    for (size_t l = 0; l < layers.size(); ++l) {
      if ((this->*is_so)(l)) return true;
    }
    return false;
  }
  // REQUIRES: has_experts(layer).
  ExpertLayerId expert_layer(LayerId layer) const {
    return {static_cast<uint16_t>(expert_layers_before(layer.value))};
  }
  // [layer with experts]: the width of an expert.
  std::vector<uint32_t> expert_widths() const {
    std::vector<uint32_t> widths;
    for (const LayerSpec& layer : layers) {
      if (layer.feed_forward.has_experts()) widths.push_back(layer.feed_forward.n_ff_expert);
    }
    return widths;
  }
  // The first attention that turns heads by their position and by the file's factors, if it has
  // some; nullptr: no layer has one.
  const AttentionSpec* first_rotated() const {
    for (const LayerSpec& l : layers) {
      const AttentionSpec* const a = l.attention();
      if (a != nullptr && a->rope && a->has_rope_factors) return a;
    }
    return nullptr;
  }
  // The largest of a width, or of a limit, over the layers.
  template <class T>
  T MostOf(T FeedForwardSpec::* member) const {
    T most = 0;
    for (const LayerSpec& l : layers) most = std::max(most, l.feed_forward.*member);
    return most;
  }
};

}  // namespace moestro
