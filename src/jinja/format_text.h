// SPDX-License-Identifier: MIT
// Python's two ways to put values into a text: "%s has %d" % ("a", 3) and "{} has {n}".format(...).
#pragma once

#include "jinja/object.h"
#include "jinja/value.h"

namespace moestro::jinja {

// Both functions escape the values that they put into an escaped text. REQUIRES: `text` is a text.
// `values`: a tuple, a dict for %(name)s, or the only value.
Value FormatPercent(const Value& text, const Value& values);
// Fields may contain attributes and items: {0.name}, {n[key]}.
Value FormatBraces(Interpreter& interpreter, const Value& text, const Arguments& arguments);

}  // namespace moestro::jinja
