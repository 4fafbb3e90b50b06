// SPDX-License-Identifier: MIT
// What libllama takes on trust in a tokenizer's metadata: it asserts or runs out of memory where
// these checks fail.
#pragma once

#include "base/result.h"
#include "model/gguf_file.h"

namespace moestro {

// Checks the vocabulary's metadata for every kind of tokenizer that libllama has. Fails with
// kUnsupported for a kind that libllama loads and cannot use, with kInvalidFile for arrays of wrong
// type or length, repeated tokens, and sizes beyond any real vocabulary.
Status CheckTokenizer(const GgufFile& file);

}  // namespace moestro
