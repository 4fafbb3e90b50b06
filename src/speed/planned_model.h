// SPDX-License-Identifier: MIT
// The needs of memory and of a machine of a model whose directory alone has been read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/run_identity.h"
#include "load/open_engine.h"
#include "model/model_file.h"
#include "native/plan/fit.h"

namespace moestro {

// A token's needs of a machine, by the model's directory alone.

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
  uint64_t table_bytes = 0;   // of a table of n-grams, which stays on the disk
  uint32_t table_rows = 0;    // of that table, which a token needs
};

ModelNeeds NeedsOf(const ModelFile& model);
// Whether a tensor of that name holds matrices of experts.
bool IsExpertsName(std::string_view name);
// Needs of a model that only libllama supports, by the names of tensors. REQUIRES: 0 < n_used <=
// n_expert.
ModelNeeds NeedsByName(const GgufFile& file, const std::string& family, const MoeShape& shape);

struct PlannedModel {
  std::string title = {};    // name and architecture
  std::string engine = {};   // "native", "hosted"
  std::string refusal = {};  // why a known family's file is hosted; empty: the file is not hosted
  size_t n_files = 1;
  uint64_t file_bytes = 0;
  uint32_t ctx = 0;
  ModelNeeds needs = {};
  ExpertCatalog catalog = {};  // for a hosted model only its pool
  FixedMemory fixed = {};

  // Reads no more of the file. kInvalidRequest: the type of keys and values does not fit the model.
  // kUnsupported: a hosted model without experts.
  static Result<PlannedModel> Of(const ModelToLoad& model, const ContextWish& wish);

  // A model of the same weights with files `times` as large.
  PlannedModel Scaled(double times) const;
  // `block`: the granularity of reads on the machine that the plan is for (PlannedBlock()).
  std::vector<Fit> fits(uint64_t block) const;
  std::optional<Fit> fit_in(uint64_t ram, uint64_t block) const;

 private:
  FixedMemory FixedFor(uint64_t block) const;
};

}  // namespace moestro
