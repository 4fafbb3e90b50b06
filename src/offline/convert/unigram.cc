// SPDX-License-Identifier: MIT
#include "offline/convert/unigram.h"

#include <cctype>
#include <cmath>
#include <string_view>
#include <unordered_set>

#include "base/binary_file.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace moestro {
namespace {

// Whether `charsmap` is a table: the number of a trie's bytes, the trie, the texts that its leaves
// lead to.
bool IsCharsmap(std::string_view charsmap) {
  if (charsmap.size() < sizeof(uint32_t)) return false;
  const auto trie = Decoder(charsmap).Take<uint32_t>();
  return trie % sizeof(uint32_t) == 0 && trie < charsmap.size() - sizeof(uint32_t) &&
         charsmap.back() == '\0';  // of the last text
}

}  // namespace

bool IsBytePiece(const std::string& text) {
  return text.size() == 6 && text.starts_with("<0x") && text.ends_with('>') &&
         std::isxdigit(static_cast<unsigned char>(text[3])) != 0 &&
         std::isxdigit(static_cast<unsigned char>(text[4])) != 0;
}

Status CheckUnigram(const UnigramVocab& vocab, const std::string& file) {
  std::unordered_set<std::string_view> texts;
  size_t unknown = 0;
  for (const Piece& piece : vocab.pieces) {
    if (piece.text.empty() || FindInvalidUtf8(piece.text) != piece.text.size() ||
        piece.text.contains('\0')) {
      return Fail(Errc::kInvalidFile, "{}: piece {} is empty or no UTF-8", file, texts.size());
    }
    if (!std::isfinite(piece.score)) {
      return Fail(Errc::kInvalidFile, "{}: piece '{}' has a score that is no number", file,
                  Printable(piece.text));
    }
    if (!texts.insert(piece.text).second) {
      return Fail(Errc::kInvalidFile, "{}: piece '{}' is there twice", file, Printable(piece.text));
    }
    if (piece.kind == PieceKind::kUnknown) ++unknown;
  }
  if (unknown != 1) {
    return Fail(Errc::kInvalidFile, "{}: {} pieces stand for unknown text, not one", file, unknown);
  }
  if (vocab.charsmap.empty() || IsCharsmap(vocab.charsmap)) return {};
  return Fail(Errc::kInvalidFile,
              "{}: the table of normalisation (precompiled_charsmap) is damaged", file);
}

}  // namespace moestro
