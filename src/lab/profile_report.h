// SPDX-License-Identifier: MIT
// The output of `profile`.
#pragma once

#include <string>

#include "base/json.h"
#include "offline/record/profile.h"

namespace moestro {

// Several lines for people, with a final newline.
std::string DescribeProfile(const Profile& profile);
Json ProfileAsJson(const Profile& profile);

}  // namespace moestro
