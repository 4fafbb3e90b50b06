// SPDX-License-Identifier: MIT
// The best policy and parameters for a model, per number of slots: `moestro sim --tune` finds them
// and the engine follows them. Values only; learned/tuning_file.h stores them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/run_identity.h"
#include "decide/slots/policy.h"

namespace moestro {

struct TunedSize {
  uint64_t slots = 0;
  PolicyChoice choice = {};
  // Hit rates on the tokens that the search did not use, 0 to 1: of `choice`, and of the same
  // policy with its default parameters.
  double hit_rate = 0.0;
  double standard_hit_rate = 0.0;
};

struct PolicyTuning {
  ModelId model = {};
  std::vector<TunedSize> sizes = {};
};

// The choice that was tuned for the number of slots nearest to `slots` by ratio. REQUIRES: the
// tuning has a size, `slots` and all tuned slots are above 0.
const PolicyChoice& ChoiceFor(const PolicyTuning& tuning, uint64_t slots);

}  // namespace moestro
