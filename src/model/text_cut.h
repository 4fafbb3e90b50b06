// SPDX-License-Identifier: MIT
// Finds places where a text may be cut so that the tokens of the parts, one after the other, are
// the tokens of the whole. A place counts only if that follows from the working of the kind of
// vocabulary; a kind or a text for which nothing can be proven has no such place.
//
// SentencePiece: two characters become neighbours inside a token only by a merge, and a merge only
// makes tokens of the vocabulary. Where no token has the two characters side by side, nothing is
// ever merged across, and the merges on either side do not depend on each other.
//
// Byte-level BPE: merges stay inside a word, and words are cut out by the pre-tokenizer's regular
// expressions from left to right, without looking back. None of the expressions known here joins a
// letter with a space or line break behind it, so a word ends there whatever follows. Equally a
// word ends with any visible character before a space, and before a single line break between
// visible characters.
//
// BPE of gemma4: the expression cuts runs of line breaks from all other text. BERT's words end at
// white space, which is part of no token.
//
// In all kinds the texts of special tokens are searched first: none of them may touch the place.
//
// Immutable; any thread may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {

class TextCutter {
 public:
  enum class Kind {
    kNowhere,        // nothing is known
    kSentencePiece,  // by pairs of neighbours
    kAfterLetters,   // BPE: an ASCII letter, then a space or line break
    kAfterVisible,   // and any visible character before a space, and around single line breaks
    kAtLines,        // gemma4, BERT: between line breaks and anything else
  };
  // The kind of a byte-level BPE with this name in tokenizer.ggml.pre.
  static Kind KindOfPreTokenizer(std::string_view name);
  static std::vector<std::string> PreTokenizers();  // all names with a kind, for tests

  explicit TextCutter(Kind kind);
  // All tokens of a SentencePiece vocabulary, in any order.
  void AddToken(std::string_view text);
  // Adds a special token, whose text is searched as it is.
  void AddSpecial(std::string_view text);

  // The last place in (first, last] at which `text`, which is UTF-8, may be cut; 0 without such a
  // place. The answer depends on up to reach() bytes behind the place. REQUIRES: first < last <
  // text.size(), and text that ends within reach() of `last` ends there for good.
  size_t LastCut(std::string_view text, size_t first, size_t last) const;
  size_t reach() const { return longest_special_; }

 private:
  bool IsCut(std::string_view text, size_t at) const;
  bool TouchesSpecial(std::string_view text, size_t at) const;
  size_t PairBit(uint32_t before, uint32_t after) const;

  Kind kind_;
  std::vector<uint64_t> pairs_;  // bits by hash: set if two characters may be neighbours in a token
  std::vector<std::string> specials_;
  size_t longest_special_ = 0;
};

}  // namespace moestro
