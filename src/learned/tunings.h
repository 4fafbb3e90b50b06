// SPDX-License-Identifier: MIT
// Measured choices for a model, as JSON files beside it: policies by slots, settings by quality;
// and where a run's policy comes from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/output_file.h"
#include "base/result.h"
#include "core/run_identity.h"
#include "decide/slots/policy.h"
#include "learned/quality_choice.h"

namespace moestro {

// A PolicyTuning as a file: JSON, so that people can read and change it. Thread rule: none, calls
// share nothing but the file system.

// `path` holds the old file or the whole new one. kIo, naming the file and the reason.
Status WriteTuning(const OutputPath& path, const PolicyTuning& tuning);

// Trusts nothing in the file: the result names known policies with values in their ranges, has at
// least one size and no size of 0 slots. kIo: cannot be read; kUnsupported: a newer format;
// kInvalidFile: anything else. The message names the file and the faulty field.
Result<PolicyTuning> ReadTuning(const std::string& path);

// Source of the policy: the user's choice, a tuning the user names, a tuning beside the model, or
// the default, the best policy that was measured without a tuning (docs/policies.md). The choice
// waits until the number of slots is known.

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

// A StoredSweep as a file beside its model: JSON, so that people can read it. 'moestro eval --sweep
// ... -o FILE' makes it, --quality reads it. Thread rule: none, calls share nothing but the file
// system.

// `path` holds the old file or the whole new one. kIo, naming the file and the reason.
Status WriteSweep(const OutputPath& path, const StoredSweep& sweep);

// Trusts nothing in the file: the result has at least one setting, no setting sets the budget, and
// figures are in their ranges. Names and values of knobs are left to SetKnob(). kIo: cannot be
// read; kUnsupported: a newer format; kInvalidFile: anything else. The message names the file and
// the faulty field.
Result<StoredSweep> ReadSweep(const std::string& path);

// Reads a sweep for a model. kInvalidRequest, naming both models, if the sweep was measured on
// another one; other errors: those of ReadSweep().
Result<StoredSweep> ReadSweepFor(const ModelId& model, const std::string& path);

}  // namespace moestro
