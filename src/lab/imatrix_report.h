// SPDX-License-Identifier: MIT
// The output of `imatrix`.
#pragma once

#include <string>

#include "base/json.h"
#include "offline/record/imatrix.h"

namespace moestro {

// Lines for people, with a final newline; `path` is where the importances went.
std::string DescribeImatrix(const std::string& path, const ImatrixReport& report);
Json ImatrixAsJson(const std::string& path, const ImatrixReport& report);

}  // namespace moestro
