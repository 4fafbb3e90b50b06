// SPDX-License-Identifier: MIT
// A SentencePiece unigram vocabulary, whatever file it was read from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace moestro {

// SentencePiece's numbers, which are GGUF's too.
enum class PieceKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct Piece {
  std::string text;
  float score = 0;
  PieceKind kind = PieceKind::kNormal;
};

struct UnigramVocab {
  std::vector<Piece> pieces;  // by id
  std::string charsmap;       // SentencePiece's table of normalisation; empty: none
  bool adds_space_prefix = true;
  bool removes_extra_spaces = true;
};

inline constexpr size_t kMostPieces = size_t{1} << 20U;

// Whether `text` is a piece such as "<0x41>", which stands for a byte.
bool IsBytePiece(const std::string& text);

// kInvalidFile: no piece is the unknown one, or several are; a text is empty, not UTF-8, or occurs
// twice; a score is not a number; the table of normalisation is malformed. `file` names it in
// messages.
Status CheckUnigram(const UnigramVocab& vocab, const std::string& file);

// Reads SentencePiece's model file, a protobuf message. Nothing in it is trusted. Pure functions.

// kInvalidFile: not such a message, or CheckUnigram() refuses its vocabulary; kUnsupported: not a
// unigram model. `file`: the file's name in messages.
Result<UnigramVocab> ParseSentencePiece(std::string_view bytes, const std::string& file);

// Reads the unigram vocabulary of a tokenizer.json, as Hugging Face's tokenizers write it. Nothing
// in it is trusted. Pure functions.

// The pieces hold the added tokens, too: sentinels such as <extra_id_0> are user defined, other
// special ones are controls. kInvalidFile: not such a file, or CheckUnigram() refuses its
// vocabulary; kUnsupported: not a unigram model. `file`: the file's name in messages.
Result<UnigramVocab> ParseTokenizerJson(const Json& json, const std::string& file);

}  // namespace moestro
