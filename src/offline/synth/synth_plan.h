// SPDX-License-Identifier: MIT
// The tensors of a synthetic model in file order: name, sizes, type and the distribution of their
// values. Pure: allocates and writes no tensor.
#pragma once

#include <ggml.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/model_spec.h"
#include "model/families/families.h"
#include "offline/synth/synth_shapes.h"
#include "offline/synth/synth_types.h"

namespace moestro {

// Parts of a synthetic model of a family, by the family's own description (model/families).

// Sizes of relative positions, where a model has them: those of T5.
inline constexpr uint32_t kSynthBuckets = 32;
inline constexpr uint32_t kSynthDistance = 128;
// Logarithm of the smallest decay, where a model has one: that of Ling 3.
inline constexpr float kSynthDecayBound = -5.0F;
// Epsilon of the norm of an indexer's keys, where files say it.
inline constexpr float kSynthIndexerEps = 1e-6F;
// Base of the rotation in layers with pools: that of DeepSeek-V4.
inline constexpr float kSynthPoolRopeBase = 160000.0F;
// How several residual streams are mixed: as in DeepSeek-V4 and GLM-5.3-Flash.
inline constexpr uint32_t kSynthStreamIterations = 20;
inline constexpr float kSynthStreamEps = 1e-6F;

// Factors of tokens in the hash of n-grams: odd numbers of 64 bits.
std::vector<uint64_t> SynthNgramFactors(uint32_t n);

// nullptr: unknown.
const Family* FindSynthFamily(std::string_view arch);
// The ModelSpec of a file of this shape, as far as the tensors determine it.
// REQUIRES: the architecture is known.
ModelSpec SpecOf(const SynthShape& shape);
// Whether a stock file has a tensor of this presence.
bool IsWritten(Presence presence);

// Distribution of a tensor's values.
enum class Fill {
  kNormal,     // zero mean, `deviation`
  kNearOne,    // mean one, `deviation`: norm weights
  kRouter,     // zero mean; rows scaled for popularity with a skew
  kRopeShort,  // rope factors near one
  kRopeLong,   // rope factors growing with the wavelength
  kRopePart,   // rope factors of one for the first quarter; the other pairs are not turned
  kDecay,      // below zero: how fast heads forget, from a token to thousands
  kRate,       // from one to four: factors of what decides how fast heads forget
  kMinusRate,  // these below zero
  kExperts,    // numbers of experts: each row has some, each once
};

struct PlannedTensor {
  std::string name;
  std::array<int64_t, 3> ne = {1, 1, 1};  // ggml order: values in a row first
  int dims = 1;
  ggml_type type = GGML_TYPE_F32;
  Fill fill = Fill::kNormal;
  float deviation = 0;

  int64_t rows() const { return ne[1] * ne[2]; }
  uint64_t weights() const { return static_cast<uint64_t>(ne[0] * ne[1] * ne[2]); }
  uint64_t bytes() const { return ggml_row_size(type, ne[0]) * static_cast<uint64_t>(rows()); }
};

struct ShapeChoices {
  bool is_tied = false;
  // Outputs of layers are scaled by 1/sqrt(2 layers), which keeps routing even at every depth. At
  // full scale attention's average over the context takes over with depth and narrows the choices:
  // in a 48-layer model the 8 favourites of 128 experts take 10 % of the choices in layer 0, 73 %
  // in layer 24.
  bool is_damped = true;
};

// REQUIRES: CheckShape(shape) succeeded.
std::vector<PlannedTensor> PlanTensors(const SynthShape& shape, const WeightScheme& scheme,
                                       const ShapeChoices& choices);

}  // namespace moestro
