// SPDX-License-Identifier: MIT
// Where prompts come from: flags, files, pipes and a terminal.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/token_stream.h"

namespace moestro {

// \n \t \r \\ \" \' \xHH as in C; anything else stays as it is (llama.cpp's rule).
std::string ProcessEscapes(std::string_view text);

// A file's text, or standard input's, without one final line break, in parts as they are asked for.
// kIo: it cannot be opened or read; the message names it.
Result<TextSource> OpenText(const std::string& path);
TextSource StandardInput();
// A whole file of at most 1 MiB that is UTF-8. kInvalidRequest, naming it, for any other.
Result<std::string> ReadSmallText(const std::string& path);

// One line of standard input without its newline; nullopt at its end and after an interrupt.
std::optional<std::string> ReadLine();

}  // namespace moestro
