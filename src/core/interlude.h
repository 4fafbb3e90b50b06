// SPDX-License-Identifier: MIT
// Steps of other sequences between two layers of a prompt's step: a prompt's step may take seconds,
// and texts that are being written need not wait for all of them.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"

namespace moestro {

struct Interlude {
  // Asked before each layer of a prompt's step. Empty: never.
  std::function<bool()> is_due = {};
  // Computes steps of other sequences. Its error ends the prompt's step.
  std::function<Status()> run = {};
  uint32_t most_rows = 0;  // of such a step
};

}  // namespace moestro
