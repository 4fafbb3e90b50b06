// SPDX-License-Identifier: MIT
#include "memory/layer_memory.h"

#include <algorithm>

namespace moestro {

namespace {

LayerMemory OfMixer(const LayerSpec& layer) {
  if (const AttentionSpec* a = layer.attention(); a != nullptr) {
    return {.keys = a->n_cell_keys(),
            .values = a->n_embd_v(),
            .head_keys = a->head_dim_k,
            .head_values = a->head_dim_v,
            .window = a->window};
  }
  if (const LatentAttentionSpec* a = layer.latent_attention(); a != nullptr) {
    // The values are part of the keys; the place of values holds an indexer's keys and gates.
    const bool has_indexer = a->has_own_indexer();
    return {.keys = a->n_key(),
            .values = has_indexer ? a->indexer->n_remembered() : 0,
            .head_keys = a->n_key(),
            .head_values = has_indexer ? a->indexer->head_dim : 0};
  }
  if (const PooledAttentionSpec* a = layer.pooled_attention(); a != nullptr) {
    const uint32_t of_indexer = a->indexer ? a->indexer->head_dim : 0;
    return {.keys = a->head_dim,
            .values = of_indexer,
            .head_keys = a->head_dim,
            .head_values = of_indexer,
            .pool = a->n_pool,
            .window = a->window,
            .state_values = a->state_values()};
  }
  if (const DeltaNetSpec* delta = layer.delta_net(); delta != nullptr) {
    return {.state_values = delta->state_values()};
  }
  if (const ShortConvSpec* conv = layer.short_conv(); conv != nullptr) {
    return {.state_values = conv->state_values()};
  }
  if (const Mamba2Spec* mamba = layer.mamba2(); mamba != nullptr) {
    return {.state_values = mamba->state_values()};
  }
  if (const StateSpec* state = layer.state(); state != nullptr) {
    return {.state_values = state->n_values};
  }
  return {};
}

}  // namespace

LayerMemory LayerMemory::Of(const LayerSpec& layer) {
  LayerMemory memory = OfMixer(layer);
  memory.state_values += layer.ngram_values;
  return memory;
}

namespace {

bool SharesCells(const ModelSpec& spec, size_t layer) {
  const AttentionSpec* const its = spec.layers[layer].attention();
  if (its == nullptr || its->reach == AttentionReach::kPast) return false;
  return its->reach == AttentionReach::kAcross || layer > 0;
}

}  // namespace

Result<MemoryShape> MemoryShape::Of(const ModelSpec& spec, KvType type) {
  MemoryShape shape{.type = type, .layers = {}};
  const KvTypeInfo& info = InfoOf(type);
  for (const LayerSpec& layer : spec.layers) {
    LayerMemory& its = shape.layers.emplace_back(LayerMemory::Of(layer));
    its.shares_cells = SharesCells(spec, shape.layers.size() - 1);
    // Heads are read one by one, so each is whole blocks; so are an indexer's keys behind them.
    const auto is_whole = [&info](uint32_t values) { return values % info.block == 0; };
    if (is_whole(its.head_keys) && is_whole(its.head_values) && is_whole(its.keys)) continue;
    return Fail(Errc::kInvalidRequest,
                "--kv-type {} stores blocks of {} values, and the heads of this model have {} in a "
                "key and {} in a value, and all keys of a position {}, no multiple of {}; leave it "
                "out to store them in {}",
                info.name, info.block, its.head_keys, its.head_values, its.keys, info.block,
                NameOf(KvType::kF16));
  }
  return shape;
}

uint64_t MemoryShape::position_bytes() const {
  uint64_t bytes = 0;
  for (uint32_t l = 0; l < layers.size(); ++l) {
    if (!layers[l].shares_cells) bytes += cell_bytes(l);
  }
  return bytes;
}

uint64_t MemoryShape::recent_bytes() const {
  uint64_t bytes = 0;
  for (uint32_t l = 0; l < layers.size(); ++l) {
    if (layers[l].window > 0) bytes += cell_bytes(l);
  }
  return bytes;
}

uint64_t MemoryShape::pool_bytes(uint32_t positions) const {
  uint64_t bytes = 0;
  for (uint32_t l = 0; l < layers.size(); ++l) {
    if (layers[l].pool == 0) continue;
    bytes += positions / layers[l].pool * (key_bytes(l) + value_bytes(l));
  }
  return bytes;
}

uint32_t MemoryShape::window() const {
  uint32_t window = 0;
  for (const LayerMemory& layer : layers) window = std::max(window, layer.window);
  return window;
}

uint64_t MemoryShape::state_values() const {
  uint64_t values = 0;
  for (const LayerMemory& layer : layers) values += layer.state_values;
  return values;
}

}  // namespace moestro
