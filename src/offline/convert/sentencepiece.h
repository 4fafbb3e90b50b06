// SPDX-License-Identifier: MIT
// Reads SentencePiece's model file, a protobuf message. Nothing in it is trusted. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "offline/convert/unigram.h"

namespace moestro {

// kInvalidFile: it is no such message, or CheckUnigram() refuses what it holds; kUnsupported: the
// model is no unigram model. `file` names it in messages.
Result<UnigramVocab> ParseSentencePiece(std::string_view bytes, const std::string& file);

}  // namespace moestro
