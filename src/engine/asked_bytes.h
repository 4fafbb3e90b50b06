// SPDX-License-Identifier: MIT
// How many bytes of experts the plans of a run ask the disk for, if every read were done at once
// and nothing were prefetched. It depends on tokens, slots and policy alone: two equal runs ask for
// the same, whatever was read too early, given up half-way or read again.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>

#include "decide/slots/resident_model.h"
#include "engine/engine.h"

namespace moestro {

class AskedBytes {
 public:
  // Takes the engine's plan observer until it goes. The engine must outlive it.
  explicit AskedBytes(Engine& engine);
  ~AskedBytes();
  AskedBytes(const AskedBytes&) = delete;
  AskedBytes& operator=(const AskedBytes&) = delete;

  // Of experts that decode rows needed and that were not in memory.
  uint64_t bytes() const { return bytes_; }

 private:
  void See(const LayerPlan& plan);

  Engine& engine_;
  ResidentModel model_;
  uint64_t bytes_ = 0;
};

}  // namespace moestro
