// SPDX-License-Identifier: MIT
// Reads SentencePiece's model file, a protobuf message. Nothing in it is trusted. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "offline/convert/unigram.h"

namespace moestro {

// kInvalidFile: not such a message, or CheckUnigram() refuses its vocabulary; kUnsupported: not a
// unigram model. `file`: the file's name in messages.
Result<UnigramVocab> ParseSentencePiece(std::string_view bytes, const std::string& file);

}  // namespace moestro
