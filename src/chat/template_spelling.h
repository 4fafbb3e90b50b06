// SPDX-License-Identifier: MIT
// A template in the spelling of the library that runs it, which reads Jinja in another way in four
// places. It says the same; what is no template stays as it is.
#pragma once

#include <string>
#include <string_view>

namespace moestro {

// * What follows the call of a function: f(x).y becomes (f(x)).y, else the library ends at f(x).
// * Blanks that begin a line before a value are printed by a value of their own, {{ "  " }}: the
//   library drops them.
// * Comments lose their words: the library takes stack for each letter.
// * A line ends with "\n" alone.
std::string SpellForLibrary(std::string_view text);

}  // namespace moestro
