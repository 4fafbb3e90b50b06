// SPDX-License-Identifier: MIT
// The tensors of a synthetic model in file order: name, sizes, type and how their values are
// drawn. Pure: nothing is allocated or written here.
#pragma once

#include <ggml.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "offline/synth_shapes.h"
#include "offline/synth_types.h"

namespace moestro {

// How the values of a tensor are drawn.
enum class Fill {
  kNormal,     // zero mean, `deviation`
  kNearOne,    // mean one, `deviation`: norm weights
  kRouter,     // zero mean; rows scaled for popularity when a skew is asked for
  kRopeShort,  // rope factors near one
  kRopeLong,   // rope factors growing with the wavelength
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

// REQUIRES: CheckShape(shape) succeeded.
std::vector<PlannedTensor> PlanTensors(const SynthShape& shape, const WeightScheme& scheme,
                                       bool is_tied);

}  // namespace moestro
