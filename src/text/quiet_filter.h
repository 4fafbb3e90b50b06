// SPDX-License-Identifier: MIT
// A filter that pauses while a model thinks, because thoughts may contain the texts that start a
// grammar.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "grammar/grammar_state.h"
#include "model/vocab.h"

namespace moestro {

// The marks in the text between which a filter sleeps. Control tokens are written as text.
struct QuietText {
  std::string begin;
  std::string end;       // empty: the filter never sleeps
  bool is_open = false;  // the text begins within
  // `begin` counts everywhere; else only at the start of the text, after blanks.
  bool is_anywhere = false;
};

// Follows a text and reports whether the text is within a quiet part.
class QuietWatch {
 public:
  explicit QuietWatch(QuietText marks);
  // Adds text. True: a part of `text`, at least its end, is not quiet.
  bool Push(std::string_view text);
  void Restart();

 private:
  enum class Place : uint8_t { kStart, kLoud, kQuiet };
  bool FindEnd();
  void FindBegin();

  QuietText marks_;
  Place place_ = Place::kStart;
  std::string tail_;  // the last bytes, in which a mark may have begun
};

class QuietFilter final : public TokenFilter {
 public:
  // `vocab` must outlive this. REQUIRES: `filter` allows every token until it gets a text that
  // occurs only in a loud part.
  QuietFilter(std::unique_ptr<TokenFilter> filter, QuietText marks, const Vocab& vocab);

  Result<bool> Take(Token token) override;
  Result<std::vector<bool>> Allowed(uint32_t n_tokens) override;
  void Restart() override;

 private:
  std::unique_ptr<TokenFilter> filter_;
  QuietWatch watch_;
  const Vocab& vocab_;
};

}  // namespace moestro
