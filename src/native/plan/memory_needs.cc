// SPDX-License-Identifier: MIT
#include "native/plan/memory_needs.h"

#include <algorithm>
#include <utility>

#include "native/catalog.h"
#include "native/joined_keys.h"
#include "native/plan/prompt_chunk.h"

namespace moestro {

Result<MemoryNeeds> MemoryNeeds::Of(const ModelFile& model, const ContextWish& wish) {
  const ModelSpec& spec = model.spec;
  TRY(MemoryShape remembers, MemoryShape::Of(spec, wish.kv_type));
  MemoryNeeds needs{
      .ctx = std::min(wish.ctx, spec.n_ctx_train),
      .dense_bytes = model.weights.dense_bytes() + JoinedKeys::BytesFor(spec, model.weights),
      .remembers = std::move(remembers),
      .catalog = MakeCatalog(model.weights)};
  needs.chunk = std::min(ChunkFor(wish.chunk, spec.router), needs.ctx);
  needs.fixed = EstimateFixed(spec, needs.dense_bytes, needs.ctx, needs.remembers, needs.chunk);
  return needs;
}

}  // namespace moestro
