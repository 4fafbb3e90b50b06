// SPDX-License-Identifier: MIT
// libllama knows the tokenizer of T5 and refuses the architecture of models that have an encoder
// with experts. It reads their vocabulary from a file in memory that has nothing else and calls
// itself T5.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "model/gguf_file.h"

namespace moestro {

// The metadata of the file's tokenizer as a GGUF in memory. kIo, kInvalidFile.
Result<UniqueFd> VocabularyAsT5(const GgufFile& file);
// A path that opens it as long as it lives.
std::string PathOf(const UniqueFd& file);

}  // namespace moestro
