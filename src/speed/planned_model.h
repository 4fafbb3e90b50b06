// SPDX-License-Identifier: MIT
// The needs of memory and of a machine of a model whose directory alone has been read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "load/model_to_load.h"
#include "native/plan/fit.h"
#include "native/plan/memory_needs.h"
#include "speed/model_needs.h"

namespace moestro {

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
  std::vector<Fit> fits() const;
  std::optional<Fit> fit_in(uint64_t ram) const;
};

}  // namespace moestro
