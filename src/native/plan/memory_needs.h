// SPDX-License-Identifier: MIT
// Memory that a model needs in a context, by the model's directory alone.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/kv_cells.h"
#include "memory/layer_memory.h"
#include "model/model_file.h"
#include "native/plan/fit.h"

namespace moestro {

struct ContextWish {
  uint32_t ctx = 4096;  // tokens; capped at the model's
  uint32_t chunk = 0;   // 0: native/plan/prompt_chunk.h
  KvType kv_type = KvType::kF16;
};

struct MemoryNeeds {
  uint32_t ctx = 0;          // tokens
  uint32_t chunk = 0;        // tokens of a prompt that are evaluated at once
  uint64_t dense_bytes = 0;  // includes keys that are joined for latent attention
  MemoryShape remembers;
  FixedMemory fixed = {};
  ExpertCatalog catalog = {};

  // kInvalidRequest: the type of keys and values does not fit the model.
  static Result<MemoryNeeds> Of(const ModelFile& model, const ContextWish& wish);
};

}  // namespace moestro
