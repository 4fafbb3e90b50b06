// SPDX-License-Identifier: MIT
#include "memory/state_store.h"

namespace moestro {

Result<StateStore> StateStore::Allocate(const MemoryShape& shape, uint32_t n_slots) {
  StateStore store;
  store.slot_values_ = shape.state_values();
  uint64_t begin = 0;
  for (const LayerMemory& layer : shape.layers) {
    store.begins_.push_back(begin);
    begin += layer.state_values;
  }
  store.begins_.push_back(begin);
  TRY(store.buffer_, BackendBuffer::OnHost(BytesFor(shape, n_slots)));
  return store;
}

std::span<float> StateStore::all(StateSlot slot) const {
  auto* values = reinterpret_cast<float*>(buffer_.data());
  return {values + slot.value * slot_values_, slot_values_};
}

std::span<float> StateStore::state(StateSlot slot, uint32_t layer) const {
  return all(slot).subspan(begins_[layer], begins_[layer + 1] - begins_[layer]);
}

}  // namespace moestro
