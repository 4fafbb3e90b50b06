// SPDX-License-Identifier: MIT
// Cuts a template into tokens, as Jinja does with trim_blocks and lstrip_blocks: the line end
// behind a block tag and blanks before the tag on its line are no text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/failure.h"

namespace moestro::jinja {

struct Token {
  enum class Kind : uint8_t {
    kText,  // outside of tags
    kPrintBegin,
    kPrintEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,  // characters of a literal, escapes resolved
    kInteger,
    kFloat,
    kOperator,
    kEnd,  // end of the template
  };
  Kind kind = Kind::kEnd;
  std::string text;
  uint32_t line = 1;
};

// Throws Failure. The last token is kEnd.
std::vector<Token> CutIntoTokens(std::string_view text);

// Goes through the tokens of a template one by one, for its parsers. Throws Failure with the line
// of the current token.

class TokenReader {
 public:
  // Levels of brackets, blocks and operators within each other: the interpreter takes stack for
  // each.
  static constexpr uint32_t kMostLevels = 200;

  explicit TokenReader(std::string_view text) : tokens_(CutIntoTokens(text)) {}

  // Counts a level for its lifetime.
  class Level {
   public:
    explicit Level(TokenReader& tokens) : tokens_(tokens) {
      if (++tokens_.level_ > kMostLevels) tokens_.FailTooDeep();
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --tokens_.level_; }

   private:
    TokenReader& tokens_;
  };

  [[noreturn]] void Fail(std::string words) const {
    throw Failure(Failure::Kind::kSyntax, std::move(words), current().line);
  }
  [[noreturn]] void FailTooDeep() const {
    Fail(Format("more than {} levels within each other", kMostLevels));
  }

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token Take() {
    Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool Is(Token::Kind kind, std::string_view text) const {
    return current().kind == kind && current().text == text;
  }
  bool IsOperator(std::string_view text) const { return Is(Token::Kind::kOperator, text); }
  bool IsName(std::string_view text) const { return Is(Token::Kind::kName, text); }
  bool SkipOperator(std::string_view text) {
    if (!IsOperator(text)) return false;
    Take();
    return true;
  }
  bool SkipName(std::string_view text) {
    if (!IsName(text)) return false;
    Take();
    return true;
  }
  std::string Found() const {
    switch (current().kind) {
      case Token::Kind::kEnd:
        return "the end of the template";
      case Token::Kind::kPrintEnd:
        return "the end of a print tag";
      case Token::Kind::kBlockEnd:
        return "the end of a block tag";
      case Token::Kind::kText:
      case Token::Kind::kPrintBegin:
      case Token::Kind::kBlockBegin:
        return "text";
      default:
        return Format("'{}'", current().text);
    }
  }
  void ExpectOperator(std::string_view text) {
    if (!SkipOperator(text)) Fail(Format("'{}' is expected, not {}", text, Found()));
  }
  void ExpectName(std::string_view text) {
    if (!SkipName(text)) Fail(Format("'{}' is expected, not {}", text, Found()));
  }
  std::string TakeName() {
    if (current().kind != Token::Kind::kName) Fail(Format("a name is expected, not {}", Found()));
    return Take().text;
  }
  void Expect(Token::Kind kind, std::string_view what) {
    if (current().kind != kind) Fail(Format("{} is expected, not {}", what, Found()));
    Take();
  }
  void ExpectBlockEnd() { Expect(Token::Kind::kBlockEnd, "the end of the block tag"); }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t level_ = 0;
};

}  // namespace moestro::jinja
