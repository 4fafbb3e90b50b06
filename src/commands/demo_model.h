// SPDX-License-Identifier: MIT
// The small story model inside the executable, as an ordinary file.
#pragma once

#include <string>

#include "base/result.h"

namespace moestro {

inline constexpr const char* kDemoPrompt = "Once upon a time";

// The path of a file with the embedded model: in $XDG_CACHE_HOME/moestro (or ~/.cache/moestro),
// written the first time, and again if its bytes are wrong. If no such folder can be written, the
// file is in memory; it then takes RAM and allows no direct reads. kIo if neither works.
Result<std::string> DemoModelPath();

// The demo model's path with the cache folder given; empty: in memory. For tests.
Result<std::string> DemoModelPathIn(const std::string& folder);

}  // namespace moestro
