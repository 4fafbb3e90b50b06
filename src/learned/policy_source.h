// SPDX-License-Identifier: MIT
// Source of the policy: the user's choice, a tuning the user names, a tuning beside the model, or
// the default, the best policy that was measured without a tuning (docs/policies.md). The choice
// waits until the number of slots is known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "decide/slots/policy_tuning.h"

namespace moestro {

class PolicySource {
 public:
  // Takes `chosen`, the user's policy, if it is set; else the tuning in `file`; if `file` is empty,
  // a tuning beside the model, if one exists. Errors: those of ReadTuning(), with the remedy.
  static Result<PolicySource> Find(std::optional<PolicyChoice> chosen, const std::string& file,
                                   const std::string& model_path);

  // kInvalidRequest: the tuning was made for another model, see CheckMadeFor().
  // REQUIRES: slots is above 0.
  Result<PolicyChoice> Choose(const ModelId& model, uint64_t slots) const;

 private:
  std::optional<PolicyChoice> chosen_;
  std::optional<PolicyTuning> tuning_;
  std::string path_;    // of the tuning
  std::string remedy_;  // for a tuning that cannot be used
};

}  // namespace moestro
