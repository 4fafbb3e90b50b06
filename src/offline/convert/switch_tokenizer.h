// SPDX-License-Identifier: MIT
// The tokenizer of a Switch Transformers folder as keys of a GGUF, as llama.cpp has T5's
// (docs/switch-format.md).
#pragma once

#include <gguf.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "offline/convert/switch_config.h"
#include "offline/convert/unigram.h"

namespace moestro {

// spiece.model with the sentinels behind, or else tokenizer.json. kIo, kUnsupported: the folder has
// neither file, or they cannot be read; errors of ParseSentencePiece() and ParseTokenizerJson().
Result<UnigramVocab> ReadSwitchTokenizer(const std::string& folder);

// One token for each row of the embedding: unused ones fill the end. kInvalidFile: more pieces than
// rows, or the end of a text is not a control token.
Status FillRows(UnigramVocab& vocab, const SwitchConfig& config);

// REQUIRES: FillRows().
void SetTokenizerKeys(gguf_context* gguf, const UnigramVocab& vocab, const SwitchConfig& config);

}  // namespace moestro
