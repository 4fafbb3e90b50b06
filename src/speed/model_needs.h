// SPDX-License-Identifier: MIT
// A token's needs of a machine, by the model's directory alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/model_id.h"
#include "model/model_file.h"

namespace moestro {

struct WeightUse {
  uint64_t bytes = 0;
  uint64_t weights = 0;
};
using UseByType = std::map<std::string, WeightUse>;  // by ggml's name

struct ModelNeeds {
  std::string family = {};  // the architecture's name
  MoeShape shape = {};
  uint32_t n_layer = 0;  // all layers
  // Matrices that every token is multiplied by, shared experts and the output's included. A token
  // reads one row of the embedding.
  UseByType dense = {};
  UseByType experts = {};     // the K experts of each layer, of mean size
  uint64_t expert_bytes = 0;  // of the mean expert
  uint64_t all_experts = 0;   // bytes
  uint64_t row_bytes = 0;     // of an expert's input in F32; 0: not known
  uint64_t state_bytes = 0;   // of layers with a state, which a token reads and writes
};

ModelNeeds NeedsOf(const ModelFile& model);
// Whether a tensor of that name holds matrices of experts.
bool IsExpertsName(std::string_view name);
// Needs of a model that only libllama supports, by the names of tensors. REQUIRES: 0 < n_used <=
// n_expert.
ModelNeeds NeedsByName(const GgufFile& file, const std::string& family, const MoeShape& shape);

}  // namespace moestro
