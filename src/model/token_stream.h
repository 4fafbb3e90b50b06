// SPDX-License-Identifier: MIT
// The tokens of a long text, piece by piece, in the memory of a piece: the same tokens that
// Vocab::Tokenize() gives for the whole text, since the text is cut only where text_cut.h proves
// that. A stretch that cannot be cut is tokenized at once, up to a limit.
//
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "model/vocab.h"

namespace moestro {

// Returns the next bytes of a text, at most `most`; none at the end.
using TextSource = std::function<Result<std::string>(size_t most)>;
TextSource FromText(std::string_view text);  // REQUIRES: `text` outlives the source

// Memory that tokenizing takes per byte of a piece, at most: libllama keeps several words per
// character, and merges that it queued. Real vocabularies took 24 to 215
// (tests/cli/memory_test.cc).
inline constexpr uint64_t kTokenizeBytesPerByte = 384;

class TokenStream {
 public:
  struct Options {
    bool add_special = true;     // tokens that begin and end a text, as Vocab::AddSpecial()
    bool parse_special = false;  // control tokens spelled in the text are those tokens
    size_t piece_bytes = 16 * 1024;
    // A stretch without a place to cut may be as long as this.
    size_t longest_piece_bytes = 1024 * 1024;
  };
  // `vocab` must outlive this.
  TokenStream(const Vocab& vocab, TextSource source, const Options& options);

  // Returns the tokens of the next piece; none at the end. kInvalidRequest: not UTF-8, or a stretch
  // that is too long; both name the byte. Also fails with errors of Vocab::Tokenize() and the
  // source.
  Result<std::vector<Token>> Next();

 private:
  Status Fill(size_t bytes);
  Result<size_t> FindPieceEnd();
  Result<std::vector<Token>> Take(size_t bytes);
  void AddSpecial(std::vector<Token>& tokens);

  const Vocab& vocab_;
  TextSource source_;
  Options options_;
  std::string text_;    // text read and not yet tokenized
  std::string before_;  // the last character before text_, if the vocabulary puts a space before a
                        // text's start
  size_t drop_ = 0;     // tokens of before_ alone, which are not given out again
  uint64_t done_ = 0;
  std::vector<Token> last_;  // the text's last tokens, as many as end a text
  bool adds_end_ = false;
  bool began_ = false;
  bool ended_ = false;  // the source has
  bool finished_ = false;
};

// Collects the tokens of a stream, at most the first `most`.
Result<std::vector<Token>> Collect(TokenStream& stream, uint64_t most);

}  // namespace moestro
