// SPDX-License-Identifier: MIT
// Sets of characters, and their form in GBNF inside a JSON string.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moestro {

struct CharRange {
  uint32_t first = 0;
  uint32_t last = 0;  // included
};

// Sorted, without overlaps and without surrogates, which are no characters.
class CharSet {
 public:
  CharSet() = default;
  explicit CharSet(const std::vector<CharRange>& ranges);
  static CharSet All();
  CharSet Complement() const;
  bool Has(uint32_t c) const;
  bool is_empty() const { return ranges_.empty(); }
  const std::vector<CharRange>& ranges() const { return ranges_; }

  // GBNF for one character of the set in a JSON string: the character itself where JSON allows
  // that, else its escape; never both. REQUIRES: not empty.
  std::string InJsonString() const;

 private:
  std::vector<CharRange> ranges_;
};

}  // namespace moestro
