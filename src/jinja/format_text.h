// SPDX-License-Identifier: MIT
// Python's two ways to put values into a text: "%s has %d" % ("a", 3) and "{} has {n}".format(...).
#pragma once

#include <string>
#include <string_view>

#include "jinja/object.h"
#include "jinja/value.h"

namespace moestro::jinja {

// `values`: a tuple, a dict for %(name)s, or the only value.
std::string FormatPercent(std::string_view text, const Value& values);
// Fields may contain attributes and items: {0.name}, {n[key]}.
std::string FormatBraces(Interpreter& interpreter, std::string_view text,
                         const Arguments& arguments);

}  // namespace moestro::jinja
