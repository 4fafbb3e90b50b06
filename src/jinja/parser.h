// SPDX-License-Identifier: MIT
// Parses a template into a tree, by Jinja's grammar with its loop controls and transformers' block
// {% generation %}. Templates cannot include or extend others.
#pragma once

#include <string_view>

#include "jinja/syntax.h"

namespace moestro::jinja {

// Throws Failure with the line of the mistake.
Body ParseTemplate(std::string_view text);

}  // namespace moestro::jinja
