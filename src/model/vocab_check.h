// SPDX-License-Identifier: MIT
// Checks of a tokenizer's metadata that libllama does not do: it would assert or run out of memory.
#pragma once

#include "base/result.h"
#include "model/gguf_file.h"

namespace moestro {

// Checks the vocabulary's metadata for every kind of tokenizer that libllama has. Fails with
// kUnsupported for a kind that libllama loads and cannot use, with kInvalidFile for arrays of wrong
// type or length, repeated tokens, and sizes beyond any real vocabulary.
Status CheckTokenizer(const GgufFile& file);

}  // namespace moestro
