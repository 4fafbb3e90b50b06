// SPDX-License-Identifier: MIT
// Texts from files and from standard input.
#pragma once

#include <string>

#include "base/result.h"
#include "model/token_stream.h"

namespace moestro {

// A file's text, or standard input's, without one final line break, in parts as they are asked for.
// kIo: it cannot be opened or read; the message names it.
Result<TextSource> OpenText(const std::string& path);
TextSource StandardInput();
// A whole file of at most 1 MiB that is UTF-8. kInvalidRequest, naming it, for any other.
Result<std::string> ReadSmallText(const std::string& path);

}  // namespace moestro
