// SPDX-License-Identifier: MIT
// A PolicyTuning as a file: JSON, so that people can read and change it. Thread rule: none, calls
// share nothing but the file system.
#pragma once

#include <string>

#include "base/output_path.h"
#include "base/result.h"
#include "decide/slots/policy_tuning.h"

namespace moestro {

// `path` holds the old file or the whole new one. kIo, naming the file and the reason.
Status WriteTuning(const OutputPath& path, const PolicyTuning& tuning);

// Trusts nothing in the file: the result names known policies with values in their ranges, has at
// least one size and no size of 0 slots. kIo: cannot be read; kUnsupported: a newer format;
// kInvalidFile: anything else. The message names the file and the faulty field.
Result<PolicyTuning> ReadTuning(const std::string& path);

}  // namespace moestro
