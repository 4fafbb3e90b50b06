// SPDX-License-Identifier: MIT
// Counts the bytes of experts that the plans of a run would read from the disk if every read were
// done at once and no expert were prefetched. The count depends on tokens, slots and policy alone.
// Two equal runs have the same count, although their real reads may differ.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>

#include "decide/slots/resident_model.h"
#include "engine/engine.h"

namespace moestro {

class AskedBytes {
 public:
  // Sets the engine's plan observer, and removes it in the destructor. The engine must outlive it.
  explicit AskedBytes(Engine& engine);
  ~AskedBytes();
  AskedBytes(const AskedBytes&) = delete;
  AskedBytes& operator=(const AskedBytes&) = delete;

  // Bytes of experts that decode rows needed and memory did not hold.
  uint64_t bytes() const { return bytes_; }

 private:
  void See(const LayerPlan& plan);

  Engine& engine_;
  ResidentModel model_;
  uint64_t bytes_ = 0;
};

}  // namespace moestro
