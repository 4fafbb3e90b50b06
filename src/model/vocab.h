// SPDX-License-Identifier: MIT
// Text <-> tokens and chat templates, by libllama (vocabulary only, no weights). llama.h stays in
// vocab.cc. Immutable after Load(); any thread may read it. Loading silences libllama's log for the
// whole process: its messages come back as errors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "model/gguf_file.h"
#include "model/text_cut.h"

namespace moestro {

// Checks of a tokenizer's metadata that libllama does not do: it would assert or run out of memory.

// Checks the vocabulary's metadata for every kind of tokenizer that libllama has. Fails with
// kUnsupported for a kind that libllama loads and cannot use, with kInvalidFile for arrays of wrong
// type or length, repeated tokens, and sizes beyond any real vocabulary.
Status CheckTokenizer(const GgufFile& file);

}  // namespace moestro

struct llama_model;
struct llama_vocab;

namespace moestro {

class Vocab {
 public:
  // Loads the vocabulary of an open model; libllama reads the header once more, after GgufFile has
  // checked it. Fails with kUnsupported for a kind of tokenizer that cannot be used, and with
  // kInvalidFile for a kind that libllama lacks and a vocabulary that contradicts itself. A file
  // without a tokenizer ("none") gives a Vocab with has_text() == false.
  static Result<Vocab> Load(const GgufFile& file);
  // Opens the file first; fails as GgufFile::Open() does, too.
  static Result<Vocab> Load(const std::string& path);
  Vocab(Vocab&&) noexcept;
  Vocab& operator=(Vocab&&) noexcept;
  ~Vocab();

  bool has_text() const;  // false: ids only, Tokenize() fails
  uint32_t size() const;
  bool is_end(Token token) const;  // end of sequence / of turn
  // The tokens of a text; with `add_special` also those that AddSpecial() adds. kInvalidRequest for
  // invalid UTF-8 (names the byte offset) or a model without tokenizer.
  Result<std::vector<Token>> Tokenize(std::string_view text, bool add_special,
                                      bool parse_special) const;
  // Adds the tokens that begin and end texts. A text that already begins with the beginning token
  // is complete and stays as it is; ending tokens are added as far as the text does not end with
  // them.
  void AddSpecial(std::vector<Token>& text) const;
  // Like AddSpecial(), in two parts, for a text of which only the first and the last tokens are at
  // hand.
  bool is_complete(std::span<const Token> first) const;
  std::vector<Token> MissingEnd(std::span<const Token> last) const;
  // Bytes of one token; may be part of a UTF-8 sequence. See text/utf8_stream for joining. Empty
  // for control tokens, ids outside the vocabulary and models without text.
  std::string Piece(Token token) const;
  // Like Piece(), but control tokens are spelled: "<|im_end|>".
  std::string Spelling(Token token) const;
  bool has_chat_template() const { return !chat_template().empty(); }
  std::string chat_template() const;  // Jinja, from the model; empty: none
  // Text of the tokens that begin and end a text; empty: none.
  std::string begin_text() const;
  std::string end_text() const;
  // Spellings of control tokens, which a text contains as tokens only if it is tokenized with
  // parse_special.
  std::vector<std::string> control_texts() const;
  // True if the text is one token of the vocabulary, control tokens included.
  bool has_token(std::string_view text) const;
  // The tokens that begin and end texts, of a model with an encoder also the token with which the
  // decoder begins. For TokenStream: where a text may be cut; whether the vocabulary may put a
  // space before a text, as SentencePiece does.
  std::vector<Token> begin_tokens() const;
  std::vector<Token> end_tokens() const;
  const TextCutter& cutter() const { return cutter_; }
  bool spaces_before_text() const;
  // No token stands for more bytes of a text than this, and no byte is left out; 0: not known.
  uint32_t longest_token_bytes() const { return longest_token_bytes_; }
  // For text/sampler.cc (grammars need it). Never null while this lives, even without text.
  const llama_vocab* raw() const;

 private:
  struct FreeModel {
    void operator()(llama_model* model) const;
  };
  using Model = std::unique_ptr<llama_model, FreeModel>;
  Vocab(Model model, std::string path);
  std::string Text(Token token, bool spells_control) const;

  Model model_;
  const llama_vocab* vocab_;  // part of *model_
  std::string path_;
  TextCutter cutter_{TextCutter::Kind::kNowhere};
  uint32_t longest_token_bytes_ = 0;
  std::optional<Token> target_begin_;  // in a model with an encoder
};

}  // namespace moestro
