// SPDX-License-Identifier: MIT
// Which policy with which parameters was found best for a model, per number of slots: what
// `moestro sim --tune` finds and the engine follows. Values only; engine/tuning_file.h keeps them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "decide/policy.h"

namespace moestro {

// What a tuning belongs to.
struct TunedModel {
  std::string name = {};  // for messages; empty: unknown
  uint64_t id = 0;        // fingerprint; 0: unknown
  uint32_t n_layer = 0;
  uint32_t n_expert = 0;  // of a layer
  uint32_t n_used = 0;
  bool operator==(const TunedModel&) const = default;
};

struct TunedSize {
  uint64_t slots = 0;
  PolicyChoice choice = {};
  // On the tokens that the search did not see, 0 to 1: of `choice`, and of the same policy with
  // its default parameters.
  double hit_rate = 0.0;
  double standard_hit_rate = 0.0;
};

struct PolicyTuning {
  TunedModel model = {};
  std::vector<TunedSize> sizes = {};
};

// What was tuned for the number of slots that is nearest to `slots` by ratio. kInvalidRequest,
// naming both models, if `model` has another shape or is known to be another one.
// REQUIRES: the tuning has a size, `slots` and all tuned slots are above 0.
Result<PolicyChoice> ChoiceFor(const PolicyTuning& tuning, const TunedModel& model, uint64_t slots);

}  // namespace moestro
