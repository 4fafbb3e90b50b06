// SPDX-License-Identifier: MIT
// A filter that sleeps while a model thinks: thoughts may speak of the texts that wake a grammar
// without meaning them.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "grammar/token_filter.h"
#include "model/vocab.h"

namespace moestro {

// Where a filter sleeps, as marks in the text. Control tokens are spelled.
struct QuietText {
  std::string begin;
  std::string end;       // empty: it never sleeps
  bool is_open = false;  // the text begins within
  bool is_anywhere =
      false;  // `begin` counts again later; else only as the first text, behind blanks
};

// Follows a text and says when it is within a quiet part.
class QuietWatch {
 public:
  explicit QuietWatch(QuietText marks);
  // Goes on with the text. True: some of it is not quiet, its end at least.
  bool Push(std::string_view text);
  void Restart();

 private:
  enum class Place : uint8_t { kStart, kLoud, kQuiet };
  bool FindEnd();
  void FindBegin();

  QuietText marks_;
  Place place_ = Place::kStart;
  std::string tail_;  // in which a mark may have begun
};

class QuietFilter final : public TokenFilter {
 public:
  // `vocab` must outlive this. REQUIRES: `filter` allows every token until it has been told a text
  // that only a loud part has.
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
