// SPDX-License-Identifier: MIT
// libllama has T5's tokenizer but refuses the architecture of models that have an encoder and
// experts. So libllama reads their vocabulary from a file in memory that holds nothing else and
// names T5 as architecture.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "model/gguf_file.h"

namespace moestro {

// The metadata of the file's tokenizer as a GGUF in memory. kIo, kInvalidFile.
Result<UniqueFd> VocabularyAsT5(const GgufFile& file);
// A path that opens `file` while the descriptor lives.
std::string PathOf(const UniqueFd& file);

}  // namespace moestro
