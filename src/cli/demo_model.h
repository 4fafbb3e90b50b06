// SPDX-License-Identifier: MIT
// The small story model inside the executable, as a file that can be read like any other.
#pragma once

#include <string>

#include "base/result.h"

namespace moestro {

inline constexpr const char* kDemoPrompt = "Once upon a time";

// The path of a file with the embedded model: in $XDG_CACHE_HOME/moestro (or ~/.cache/moestro),
// written there the first time and whenever its bytes are not the right ones; where no such folder
// can be written, in memory (such a file costs RAM and takes no direct reads). kIo if neither
// works.
Result<std::string> DemoModelPath();

// The same with the cache folder given; empty: in memory. For tests.
Result<std::string> DemoModelPathIn(const std::string& folder);

}  // namespace moestro
