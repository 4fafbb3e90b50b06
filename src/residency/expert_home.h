// SPDX-License-Identifier: MIT
// Memory in which each expert has an address of its own, in place of slots that any expert of a
// pool can take. A pool's number of slots then says how many of its experts are there at a time.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>

#include "core/ids.h"

namespace moestro {

class ExpertHome {
 public:
  virtual ~ExpertHome() = default;
  // The window of whole blocks that a matrix is read into (core/extent.h).
  virtual std::byte* Window(ExpertKey key, Matrix m) = 0;
  // Its bytes are about to be read.
  virtual void Comes(ExpertKey key) = 0;
  // Its bytes are not needed any more, or did not come. What it shares with experts that are still
  // there must stay.
  virtual void Leaves(ExpertKey key) = 0;
};

}  // namespace moestro
