// SPDX-License-Identifier: MIT
// Input of a person: escapes in flags, lines at a terminal.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moestro {

// \n \t \r \\ \" \' \xHH as in C; other text does not change (llama.cpp's rule).
std::string ProcessEscapes(std::string_view text);

// One line of standard input without its newline; nullopt at its end and after an interrupt.
std::optional<std::string> ReadLine();
// Whether ReadLine() returns at once, with a line or at the end. Always true where standard input
// is not a terminal.
bool HasInput();

}  // namespace moestro
