// SPDX-License-Identifier: MIT
// Texts from files and from standard input.
#pragma once

#include <string>

#include "base/result.h"
#include "model/token_stream.h"

namespace moestro {

// The text of a file or of standard input, without one final line break, in parts on request. kIo:
// the file cannot be opened or read; the message names it.
Result<TextSource> OpenText(const std::string& path);
TextSource StandardInput();
// Reads a whole file of at most 1 MiB in UTF-8. kInvalidRequest, naming the file, for any other
// file.
Result<std::string> ReadSmallText(const std::string& path);

}  // namespace moestro
