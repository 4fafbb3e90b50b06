// SPDX-License-Identifier: MIT
#include "offline/synth/synth_types.h"

#include <array>

#include "offline/weight_types.h"

namespace moestro {
namespace {

struct SchemeRow {
  std::string_view name;
  ggml_type base;
  uint32_t file_type;
};

constexpr std::array<SchemeRow, 17> kSchemes = {{{"F32", GGML_TYPE_F32, 0},
                                                 {"F16", GGML_TYPE_F16, 1},
                                                 {"BF16", GGML_TYPE_BF16, 32},
                                                 {"Q8_0", GGML_TYPE_Q8_0, 7},
                                                 {"Q4_0", GGML_TYPE_Q4_0, 2},
                                                 {"Q4_1", GGML_TYPE_Q4_1, 3},
                                                 {"Q5_0", GGML_TYPE_Q5_0, 8},
                                                 {"Q5_1", GGML_TYPE_Q5_1, 9},
                                                 {"Q2_K", GGML_TYPE_Q2_K, 10},
                                                 {"Q3_K", GGML_TYPE_Q3_K, 11},
                                                 {"Q4_K", GGML_TYPE_Q4_K, 14},
                                                 {"Q5_K", GGML_TYPE_Q5_K, 16},
                                                 {"Q6_K", GGML_TYPE_Q6_K, 18},
                                                 {"IQ4_NL", GGML_TYPE_IQ4_NL, 25},
                                                 {"IQ4_XS", GGML_TYPE_IQ4_XS, 30},
                                                 {"MXFP4", GGML_TYPE_MXFP4, 38},
                                                 {"Q4_K_M", GGML_TYPE_Q4_K, 15}}};

// Whether stock K-quant mixes give the layer more bits: the first and last eighth of the layers and
// every third between them.
bool GetsMoreBits(uint32_t layer, uint32_t layers) {
  const uint32_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

ggml_type MixedType(const MatrixContext& place) {
  const bool few_experts = place.experts == 8;  // attention is a small share of such a model
  const bool more_bits = GetsMoreBits(place.layer, place.layers);
  switch (place.role) {
    case MatrixRole::kOutput:
      return GGML_TYPE_Q6_K;
    case MatrixRole::kTokenEmbd:
      return place.is_tied ? GGML_TYPE_Q6_K : GGML_TYPE_Q4_K;
    case MatrixRole::kQueryLatent:
      return GGML_TYPE_Q8_0;
    case MatrixRole::kAttnK:
      return few_experts ? GGML_TYPE_Q8_0 : GGML_TYPE_Q4_K;
    case MatrixRole::kAttnV:
      if (few_experts) return GGML_TYPE_Q8_0;
      return more_bits ? GGML_TYPE_Q6_K : GGML_TYPE_Q4_K;
    case MatrixRole::kAttnOutput:
      return few_experts ? GGML_TYPE_Q5_K : GGML_TYPE_Q4_K;
    case MatrixRole::kExpertDown:
    case MatrixRole::kSharedDown:
    case MatrixRole::kDenseDown:
    case MatrixRole::kStreamsDown:
      return more_bits ? GGML_TYPE_Q6_K : GGML_TYPE_Q4_K;
    default:
      return GGML_TYPE_Q4_K;
  }
}

}  // namespace

Result<WeightScheme> FindScheme(std::string_view name) {
  const std::string wanted = Uppercase(name);
  for (const SchemeRow& row : kSchemes) {
    if (row.name != wanted) continue;
    return WeightScheme{.name = wanted,
                        .base = row.base,
                        .file_type = row.file_type,
                        .is_mix = wanted == "Q4_K_M",
                        .is_experts_only = row.base == GGML_TYPE_MXFP4};
  }
  std::string known;
  for (const SchemeRow& row : kSchemes)
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  return Fail(Errc::kUsage, "unknown weight type '{}'; known are {}", name, known);
}

std::vector<std::string> SchemeNames() {
  std::vector<std::string> names;
  for (const SchemeRow& row : kSchemes) names.emplace_back(row.name);
  return names;
}

ggml_type TypeFor(const WeightScheme& scheme, const MatrixContext& place) {
  if (place.role == MatrixRole::kKept) {
    return ggml_is_quantized(scheme.base) ? GGML_TYPE_F16 : scheme.base;
  }
  ggml_type type = scheme.is_mix ? MixedType(place) : scheme.base;
  if (scheme.is_experts_only && place.role != MatrixRole::kExpertGateUp &&
      place.role != MatrixRole::kExpertDown && !place.is_of_heads) {
    type = GGML_TYPE_Q8_0;
  }
  return FittingType(type, place.row);
}

}  // namespace moestro
