// SPDX-License-Identifier: MIT
// Marks texts of control tokens ("<|im_end|>") in a client's words. There such texts are words, and
// must not become the tokens that the same texts in a template become. So each gets a mark inside
// before the template is rendered; afterwards the marks are taken out, and the text around each
// mark certainly has no control token.
//
// Immutable; any thread may read it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {

class ControlTexts {
 public:
  ControlTexts() = default;
  // Texts of a single character are left out: no mark fits inside.
  explicit ControlTexts(const std::vector<std::string>& texts);

  bool empty() const { return nodes_.empty(); }
  // Bytes of the longest control text at the beginning of `text`; 0: none.
  size_t MatchAt(std::string_view text) const;

 private:
  struct Node {
    std::map<char, uint32_t> next;
    bool is_end = false;
  };
  std::vector<Node> nodes_;  // the first is the root
  std::array<bool, 256> begins_{};
};

// A part of a text, in bytes.
struct TextPart {
  size_t begin = 0;
  size_t end = 0;
};

struct UnmarkedText {
  std::string text;
  // Parts from one control token to the next that had a mark: control texts in them are words.
  std::vector<TextPart> plain;
};

// A character that no text needs: a noncharacter of Unicode.
inline constexpr std::string_view kTextMark = "\uFDD0";

// The text with a mark within each control text. Marking twice is marking once.
std::string MarkControls(const ControlTexts& controls, std::string_view text);
UnmarkedText Unmark(const ControlTexts& controls, std::string_view marked);

}  // namespace moestro
