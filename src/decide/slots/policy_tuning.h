// SPDX-License-Identifier: MIT
// Which policy with which parameters was found best for a model, per number of slots: what
// `moestro sim --tune` finds and the engine follows. Values only; learned/tuning_file.h keeps them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model_id.h"
#include "decide/slots/policy.h"

namespace moestro {

struct TunedSize {
  uint64_t slots = 0;
  PolicyChoice choice = {};
  // On the tokens that the search did not see, 0 to 1: of `choice`, and of the same policy with
  // its default parameters.
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
