// SPDX-License-Identifier: MIT
// Which tensor plays which role: the names of gguf-py with the shape and the architectures each one
// belongs to. weights.cc reads models by these tables.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/ids.h"
#include "core/model_spec.h"
#include "model/weights.h"

namespace moestro {

// One dimension of a shape, in words; DimSize() gives the number.
enum class Dim : uint8_t {
  kOne,
  kEmbd,
  kQuery,     // n_head * head_dim_k
  kKeys,      // n_head_kv * head_dim_k
  kValues,    // n_head_kv * head_dim_v
  kQkv,       // the three above together
  kHeadsOut,  // n_head * head_dim_v
  kHeadDim,   // head_dim_k
  kExperts,
  kSharedFf,
  kVocab,
  kHalfRotary,  // rotated dimensions / 2
};
int64_t DimSize(Dim dim, const ModelSpec& spec);

// Sets of architectures as bits.
using ArchSet = uint8_t;
constexpr ArchSet In(Arch arch) { return static_cast<ArchSet>(1U << static_cast<unsigned>(arch)); }
inline constexpr ArchSet kAllArchs = 0x1F;

// A matrix may have any type that ggml's CPU backend multiplies; a vector is F32.
enum class TensorKind : uint8_t { kMatrix, kVector };

template <class Owner>
struct TensorRole {
  const TensorInfo* Owner::* member;
  std::string_view name;  // layers: without "blk.N."
  TensorKind kind;
  Dim ne0;
  Dim ne1;
  ArchSet required;
  ArchSet optional;
};

std::span<const TensorRole<ModelWeights>> ModelRoles();
std::span<const TensorRole<LayerWeights>> LayerRoles();

std::string LayerTensorName(uint32_t layer, std::string_view name);  // blk.3.attn_q.weight
std::string MergedExpertsName(uint32_t layer, Matrix matrix);        // blk.3.ffn_gate_exps.weight
std::string FusedGateUpName(uint32_t layer);  // blk.3.ffn_gate_up_exps.weight
// As converters wrote Mixtral before experts were merged: blk.3.ffn_gate.7.weight.
std::string SingleExpertName(uint32_t layer, Matrix matrix, uint32_t expert);

}  // namespace moestro
