// SPDX-License-Identifier: MIT
// Reads the unigram vocabulary of a tokenizer.json, as Hugging Face's tokenizers write it. Nothing
// in it is trusted. Pure functions.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "offline/convert/unigram.h"

namespace moestro {

// The pieces hold the added tokens, too: sentinels such as <extra_id_0> are user defined, other
// special ones are controls. kInvalidFile: not such a file, or CheckUnigram() refuses its
// vocabulary; kUnsupported: not a unigram model. `file`: the file's name in messages.
Result<UnigramVocab> ParseTokenizerJson(const Json& json, const std::string& file);

}  // namespace moestro
