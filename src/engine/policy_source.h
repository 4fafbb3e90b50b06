// SPDX-License-Identifier: MIT
// Where the policy comes from: the user's choice, a tuning the user names, a tuning that lies
// beside the model, or the default, the best that was measured without any (docs/policies.md).
// The choice waits until the number of slots is known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "decide/policy_tuning.h"
#include "engine/engine_options.h"

namespace moestro {

class PolicySource {
 public:
  // Reads the tuning if there is one to read. Errors: what ReadTuning() says, and the remedy.
  static Result<PolicySource> Find(const EngineOptions& options, const std::string& model_path);

  // kInvalidRequest, naming file and remedy: the tuning is for another model.
  // REQUIRES: slots is above 0.
  Result<PolicyChoice> Choose(const TunedModel& model, uint64_t slots) const;

 private:
  std::optional<PolicyChoice> chosen_;
  std::optional<PolicyTuning> tuning_;
  std::string path_;    // of the tuning
  std::string remedy_;  // when it is of no use
};

}  // namespace moestro
