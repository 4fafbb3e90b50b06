// SPDX-License-Identifier: MIT
// The role of a tensor that stays in memory: its name in a file, its shape, its place and its use.
#pragma once

#include <cstdint>
#include <string_view>

namespace moestro {

// One dimension of a shape, in words; DimSize() of model/tensor_names.h gives the number.
enum class Dim : uint8_t {
  kOne,
  kEmbd,
  kTwoEmbd,      // of an embedding and a hidden state together
  kQuery,        // n_head * head_dim_k; twice that if it holds an output gate
  kQueryLatent,  // of latent attention: values by way of which queries are projected
  kKeyLatent,    // a key without the values that are turned by the position
  kLatentKey,    // a whole key
  kPlainQuery,   // values of a head's query that meet the latent
  kHeadValues,   // values that a head gives
  kJoinedHeads,  // the two above of all heads
  kIndexerHeads,
  kIndexerKey,      // values of an indexer's key
  kIndexerQueries,  // of the queries of all its heads
  kIndexerShares,   // of a position's share in keys of pools
  kIndexerPool,     // positions of a pool
  kPoolShares,      // of a position's share in keys of pools that attention itself attends to
  kPool,            // positions of such a pool
  kGroupHeads,      // results of a group of heads
  kGroupOut,        // what they are projected to
  kGroups,
  kGroupsOut,  // of all groups together
  kKeys,       // n_head_kv * head_dim_k
  kValues,     // n_head_kv * head_dim_v
  kQkv,        // the three above together
  kMixerOut,   // result of a layer's mixer: n_head * head_dim_v of attention
  kHeads,
  kBuckets,      // ranges of distances, each with a number that is added to scores
  kGates,        // results of the matrix for attention's output gate
  kConvolved,    // channels of a state mixer's convolution
  kTaps,         // inputs of that convolution
  kStateHeads,   // heads with a matrix of their own
  kDecays,       // of a delta net: one of each head, or of each value of a key
  kGateInputs,   // of a delta net of Kimi's: results of its first matrices of decays and gates
  kStateHeads2,  // twice as many
  kStateHead,    // values of such a head
  kProjected,    // all projections of a state mixer's input together
  kStateGroup,   // values of the heads that a norm covers together
  kStateGroups,
  kQueryNorm,  // of one norm of queries: a head's values, or all heads'
  kKeyNorm,
  kExperts,
  kUsedExperts,
  kLatent,  // of what routed experts take and give
  kExpertFf,
  kSharedFf,
  kDenseFf,
  kVocab,
  kHalfRotary,  // rotated dimensions / 2
  kStreams,     // values of all residual streams of a row
  kStreamWeights,
  kStreamScales,
  kStreamNumber,   // number of streams
  kStreamLowRank,  // values by way of which streams give gates
  kNgramValues,    // of an n-gram's row
  kNgramRows,
  kNgrams,  // values of all n-grams of a token
  kNgramTaps,
};

// A matrix may have any type that ggml's CPU backend multiplies; a vector is F32 (also one per
// expert, which makes it two-dimensional); numbers are I32.
enum class TensorKind : uint8_t { kMatrix, kVector, kNumbers };

// Layers that have a role.
enum class LayerModule : uint8_t {
  kEvery,
  kAttention,
  kAttended,         // attention of any kind, a delta net of Kimi's, a mixer of a test
  kQueried,          // attention that projects queries at once, or a delta net of Kimi's
  kGated,            // attention, or latent attention with gates
  kLatentAttention,  // latent attention
  kQueryLatent,      // attention that projects queries by way of a latent
  kSharedKey,        // latent or pooled attention: all heads share a key
  kSinks,            // attention, or pooled attention
  kPooled,           // pooled attention
  kPools,            // the same with pools
  kPoolIndexer,      // the same with an indexer
  kSplitHeads,       // latent attention with a matrix for queries and one for values
  kJoinedHeads,      // latent attention with one matrix for both
  kIndexer,          // latent attention that chooses positions
  kBlockIndexer,     // attention that chooses blocks of positions
  kAnyIndexer,       // one of the two
  kIndexerQueries,   // latent or pooled attention with an indexer
  kIndexerPools,     // the same that chooses pools of positions
  kKeyed,            // attention, or a delta net of the next kind
  kDeltaNet,
  kKimiDelta,    // a delta net where each value of a key decays on its own
  kGatesInTwo,   // such a delta net with two matrices each for decays and gates
  kColumnDecay,  // kKimiDelta or Mamba-2
  kMamba2,
  kStateHeads,  // a delta net or Mamba-2
  kShortConv,
  kExperts,
  kTokenExperts,   // experts that a table names
  kScoredExperts,  // the others
  kLatent,         // experts whose input and results are projected
  kShared,
  kDense,
  kNgrams,      // a layer that takes in n-grams
  kPredicting,  // a layer that predicts further tokens
};

// Users of a tensor. A tensor that only stands on the left of products may be stored in another
// layout; routers gain nothing from that.
enum class TensorUse : uint8_t {
  kAny,
  kOnlyMultiplied,
  kByHost,  // looked up or added by code outside the graphs: always in memory
  kOnDisk,  // rows are read from the file when they are needed
};

struct TensorRole {
  std::string_view name;  // layers: without "blk.N."
  TensorKind kind;
  Dim ne0;
  Dim ne1 = Dim::kOne;
  TensorUse use = TensorUse::kAny;
  LayerModule part = LayerModule::kEvery;
  std::string_view other_name = {};  // other name in some files; empty: none
  Dim ne2 = Dim::kOne;
};

}  // namespace moestro
