// SPDX-License-Identifier: MIT
#include "model/tensor_names.h"

#include <array>

#include "base/format.h"

namespace moestro {
namespace {

constexpr ArchSet kLlama = In(Arch::kLlama);
constexpr ArchSet kQwen2 = In(Arch::kQwen2Moe);
constexpr ArchSet kQwen3 = In(Arch::kQwen3Moe);
constexpr ArchSet kOlmoe = In(Arch::kOlmoe);
constexpr ArchSet kPhi = In(Arch::kPhimoe);
constexpr ArchSet kNo = 0;
constexpr TensorKind kMat = TensorKind::kMatrix;
constexpr TensorKind kVec = TensorKind::kVector;

using M = ModelWeights;
constexpr std::array kModelRoles{
    TensorRole<M>{&M::token_embd, "token_embd.weight", kMat, Dim::kEmbd, Dim::kVocab, kAllArchs,
                  kNo},
    TensorRole<M>{&M::output, "output.weight", kMat, Dim::kEmbd, Dim::kVocab, kNo, kAllArchs},
    TensorRole<M>{&M::output_b, "output.bias", kVec, Dim::kVocab, Dim::kOne, kPhi, kNo},
    TensorRole<M>{&M::output_norm, "output_norm.weight", kVec, Dim::kEmbd, Dim::kOne, kAllArchs,
                  kNo},
    TensorRole<M>{&M::output_norm_b, "output_norm.bias", kVec, Dim::kEmbd, Dim::kOne, kPhi, kNo},
    TensorRole<M>{&M::rope_freqs, "rope_freqs.weight", kVec, Dim::kHalfRotary, Dim::kOne, kNo,
                  kLlama},
    TensorRole<M>{&M::rope_factors_long, "rope_factors_long.weight", kVec, Dim::kHalfRotary,
                  Dim::kOne, kNo, kPhi},
    TensorRole<M>{&M::rope_factors_short, "rope_factors_short.weight", kVec, Dim::kHalfRotary,
                  Dim::kOne, kNo, kPhi},
};

using L = LayerWeights;
constexpr std::array kLayerRoles{
    TensorRole<L>{&L::attn_norm, "attn_norm.weight", kVec, Dim::kEmbd, Dim::kOne, kAllArchs, kNo},
    TensorRole<L>{&L::attn_norm_b, "attn_norm.bias", kVec, Dim::kEmbd, Dim::kOne, kPhi, kNo},
    // The three or the fused form: ReadWeights() demands one of them.
    TensorRole<L>{&L::attn_q, "attn_q.weight", kMat, Dim::kEmbd, Dim::kQuery, kNo, kAllArchs},
    TensorRole<L>{&L::attn_k, "attn_k.weight", kMat, Dim::kEmbd, Dim::kKeys, kNo, kAllArchs},
    TensorRole<L>{&L::attn_v, "attn_v.weight", kMat, Dim::kEmbd, Dim::kValues, kNo, kAllArchs},
    TensorRole<L>{&L::attn_qkv, "attn_qkv.weight", kMat, Dim::kEmbd, Dim::kQkv, kNo, kAllArchs},
    TensorRole<L>{&L::attn_q_b, "attn_q.bias", kVec, Dim::kQuery, Dim::kOne, kNo, kAllArchs},
    TensorRole<L>{&L::attn_k_b, "attn_k.bias", kVec, Dim::kKeys, Dim::kOne, kNo, kAllArchs},
    TensorRole<L>{&L::attn_v_b, "attn_v.bias", kVec, Dim::kValues, Dim::kOne, kNo, kAllArchs},
    TensorRole<L>{&L::attn_qkv_b, "attn_qkv.bias", kVec, Dim::kQkv, Dim::kOne, kNo, kAllArchs},
    TensorRole<L>{&L::attn_out, "attn_output.weight", kMat, Dim::kHeadsOut, Dim::kEmbd, kAllArchs,
                  kNo},
    TensorRole<L>{&L::attn_out_b, "attn_output.bias", kVec, Dim::kEmbd, Dim::kOne, kPhi, kAllArchs},
    TensorRole<L>{&L::attn_q_norm, "attn_q_norm.weight", kVec, Dim::kHeadDim, Dim::kOne, kQwen3,
                  kNo},
    TensorRole<L>{&L::attn_k_norm, "attn_k_norm.weight", kVec, Dim::kHeadDim, Dim::kOne, kQwen3,
                  kNo},
    TensorRole<L>{&L::attn_q_norm, "attn_q_norm.weight", kVec, Dim::kQuery, Dim::kOne, kOlmoe, kNo},
    TensorRole<L>{&L::attn_k_norm, "attn_k_norm.weight", kVec, Dim::kKeys, Dim::kOne, kOlmoe, kNo},
    TensorRole<L>{&L::ffn_norm, "ffn_norm.weight", kVec, Dim::kEmbd, Dim::kOne, kAllArchs, kNo},
    TensorRole<L>{&L::ffn_norm_b, "ffn_norm.bias", kVec, Dim::kEmbd, Dim::kOne, kPhi, kNo},
    TensorRole<L>{&L::router, "ffn_gate_inp.weight", kMat, Dim::kEmbd, Dim::kExperts, kAllArchs,
                  kNo},
    TensorRole<L>{&L::shared_router, "ffn_gate_inp_shexp.weight", kVec, Dim::kEmbd, Dim::kOne,
                  kQwen2, kNo},
    TensorRole<L>{&L::shared_gate, "ffn_gate_shexp.weight", kMat, Dim::kEmbd, Dim::kSharedFf,
                  kQwen2, kNo},
    TensorRole<L>{&L::shared_up, "ffn_up_shexp.weight", kMat, Dim::kEmbd, Dim::kSharedFf, kQwen2,
                  kNo},
    TensorRole<L>{&L::shared_down, "ffn_down_shexp.weight", kMat, Dim::kSharedFf, Dim::kEmbd,
                  kQwen2, kNo},
};

std::string_view Name(Matrix matrix) {
  constexpr std::array<std::string_view, kMatrices> kNames{"ffn_gate", "ffn_up", "ffn_down"};
  return kNames[static_cast<size_t>(matrix)];
}

}  // namespace

int64_t DimSize(Dim dim, const ModelSpec& spec) {
  const int64_t query = int64_t{spec.n_head} * spec.head_dim_k;
  const int64_t keys = int64_t{spec.n_head_kv} * spec.head_dim_k;
  const int64_t values = int64_t{spec.n_head_kv} * spec.head_dim_v;
  switch (dim) {
    case Dim::kOne:
      return 1;
    case Dim::kEmbd:
      return spec.n_embd;
    case Dim::kQuery:
      return query;
    case Dim::kKeys:
      return keys;
    case Dim::kValues:
      return values;
    case Dim::kQkv:
      return query + keys + values;
    case Dim::kHeadsOut:
      return int64_t{spec.n_head} * spec.head_dim_v;
    case Dim::kHeadDim:
      return spec.head_dim_k;
    case Dim::kExperts:
      return spec.router.n_expert;
    case Dim::kSharedFf:
      return spec.n_ff_shared;
    case Dim::kVocab:
      return spec.n_vocab;
    case Dim::kHalfRotary:
      return spec.rope.n_dims / 2;
  }
  return 0;
}

std::span<const TensorRole<ModelWeights>> ModelRoles() { return kModelRoles; }
std::span<const TensorRole<LayerWeights>> LayerRoles() { return kLayerRoles; }

std::string LayerTensorName(uint32_t layer, std::string_view name) {
  return Format("blk.{}.{}", layer, name);
}

std::string MergedExpertsName(uint32_t layer, Matrix matrix) {
  return Format("blk.{}.{}_exps.weight", layer, Name(matrix));
}

std::string FusedGateUpName(uint32_t layer) {
  return Format("blk.{}.ffn_gate_up_exps.weight", layer);
}

std::string SingleExpertName(uint32_t layer, Matrix matrix, uint32_t expert) {
  return Format("blk.{}.{}.{}.weight", layer, Name(matrix), expert);
}

}  // namespace moestro
