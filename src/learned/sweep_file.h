// SPDX-License-Identifier: MIT
// A StoredSweep as a file beside its model: JSON, so that people can read it. 'moestro eval --sweep
// ... -o FILE' makes it, --quality reads it. Thread rule: none, calls share nothing but the file
// system.
#pragma once

#include <string>

#include "base/output_path.h"
#include "base/result.h"
#include "core/run_identity.h"
#include "learned/quality_choice.h"

namespace moestro {

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
