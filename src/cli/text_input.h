// SPDX-License-Identifier: MIT
// Where prompts come from: flags, files, pipes and a terminal.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moestro {

// \n \t \r \\ \" \' \xHH as in C; anything else stays as it is (llama.cpp's rule).
std::string ProcessEscapes(std::string_view text);

// The whole file without one final newline. kIo: unreadable; kInvalidRequest: larger than any
// context, or not UTF-8 (names the byte).
Result<std::string> ReadTextFile(const std::string& path);
// Standard input to its end, by the same rules.
Result<std::string> ReadStdin();

// One line of standard input without its newline; nullopt at its end and after an interrupt.
std::optional<std::string> ReadLine();

}  // namespace moestro
