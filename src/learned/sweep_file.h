// SPDX-License-Identifier: MIT
// A StoredSweep as a file beside its model: JSON, so that people can read it. 'moestro eval --sweep
// ... -o FILE' makes it, --quality reads it. Thread rule: none, calls share nothing but the file
// system.
#pragma once

#include <string>

#include "base/output_path.h"
#include "base/result.h"
#include "core/model_id.h"
#include "learned/quality_choice.h"

namespace moestro {

// `path` holds the old file or the whole new one. kIo, naming the file and the reason.
Status WriteSweep(const OutputPath& path, const StoredSweep& sweep);

// Nothing in the file is trusted: what comes back has at least one setting, none of which sets the
// budget, and figures that can be. What a knob is called and takes is left to SetKnob(). kIo:
// cannot be read; kUnsupported: a newer format; kInvalidFile: anything else. The message names the
// file and what is wrong in it.
Result<StoredSweep> ReadSweep(const std::string& path);

// The same for a model: kInvalidRequest, naming both, if it was measured on another one.
Result<StoredSweep> ReadSweepFor(const ModelId& model, const std::string& path);

}  // namespace moestro
