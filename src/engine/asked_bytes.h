// SPDX-License-Identifier: MIT
// How many bytes of experts a run asks the disk for. Unlike the bytes that were read it does not
// depend on what was given up half-way or read again: without prefetch two equal runs ask for the
// same.
//
// Counted are, with the size of their copy: every expert of a plan with decode rows that was
// neither in memory nor on its way when the plan was made, and every absent expert that a prefetch
// was issued for. When prefetch is worthwhile is judged by measured time (see
// decide/prefetch_control.h), so with it two runs may differ.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>

#include "engine/engine.h"

namespace moestro {

class AskedBytes {
 public:
  // Takes the engine's plan and request observers until it goes. The engine must outlive it.
  explicit AskedBytes(Engine& engine);
  ~AskedBytes();
  AskedBytes(const AskedBytes&) = delete;
  AskedBytes& operator=(const AskedBytes&) = delete;

  uint64_t bytes() const { return bytes_; }

 private:
  Engine& engine_;
  uint64_t bytes_ = 0;
};

}  // namespace moestro
