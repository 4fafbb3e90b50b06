// SPDX-License-Identifier: MIT
#include "model/tensor_names.h"

#include <array>

#include "base/format.h"

namespace moestro {
namespace {

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
    case Dim::kQueryNorm:
      return spec.attention.qk_norm == QkNorm::kPerHead ? spec.head_dim_k : query;
    case Dim::kKeyNorm:
      return spec.attention.qk_norm == QkNorm::kPerHead ? spec.head_dim_k : keys;
    case Dim::kExperts:
      return spec.router.n_expert;
    case Dim::kExpertFf:
      return spec.n_ff_expert;
    case Dim::kSharedFf:
      return spec.n_ff_shared;
    case Dim::kDenseFf:
      return spec.n_ff_dense;
    case Dim::kVocab:
      return spec.n_vocab;
    case Dim::kHalfRotary:
      return spec.rope.n_dims / 2;
  }
  return 0;
}

std::string LayerTensorName(uint32_t layer, std::string_view name) {
  return Format("blk.{}.{}", layer, name);
}

std::string MergedExpertsName(uint32_t layer, Matrix matrix) {
  return Format("blk.{}.{}_exps.weight", layer, Name(matrix));
}

std::string LowExpertsName(uint32_t layer, Matrix matrix) {
  return Format("blk.{}.{}_exps_low.weight", layer, Name(matrix));
}

std::string FusedGateUpName(uint32_t layer) {
  return Format("blk.{}.ffn_gate_up_exps.weight", layer);
}

std::string SingleExpertName(uint32_t layer, Matrix matrix, uint32_t expert) {
  return Format("blk.{}.{}.{}.weight", layer, Name(matrix), expert);
}

}  // namespace moestro
