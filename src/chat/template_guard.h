// SPDX-License-Identifier: MIT
// Chat templates come from model files, and the library that runs them trusts them. This makes a
// template safe to give to it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace moestro {

// Functions that a guarded template calls; the renderer provides them. They end a rendering by an
// exception.
inline constexpr std::string_view kTickFunction = "_moestro_tick";  // (bytes of the body)
inline constexpr std::string_view kKeepFunction = "_moestro_keep";  // (value), gives it back
inline constexpr std::string_view kOwnFunction = "_moestro_own";    // (value), gives a deep copy

// The template with a call of kTickFunction at the start of every body that may run more than once,
// of kKeepFunction around every value that is printed or stored, and of kOwnFunction around every
// list and dictionary that is written out and every value that is put into another. So values are
// trees, which the library can print and compare; what is stored does not see later changes of what
// it was copied from. Else what the template says stays the same.
//
// kUnsupported for what could crash the library or run without bound before a function is called:
// very long or deeply nested expressions, division by anything but a plain number, strides and
// multiplications of texts, insert().
Result<std::string> GuardTemplate(std::string_view text);

}  // namespace moestro
