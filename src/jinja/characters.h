// SPDX-License-Identifier: MIT
// Texts like Python's strings: characters are code points. A byte that is not UTF-8 counts as one
// character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moestro::jinja {

size_t CountCharacters(std::string_view text);
// Views into the text.
std::vector<std::string_view> SplitCharacters(std::string_view text);
// Bytes before a character; text.size() behind the last.
size_t ByteOf(std::string_view text, size_t character);
void AppendCharacter(std::string& text, uint32_t code_point);
// The code point at the beginning of a text, and its bytes.
struct Character {
  uint32_t code_point = 0;
  size_t bytes = 0;
};
Character FirstCharacter(std::string_view text);

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Capitalize(std::string_view text);
std::string SwapCase(std::string_view text);
// str.title(): a letter behind no letter is a capital.
std::string TitleOfLetters(std::string_view text);
// The filter `title`: a letter behind a blank, "-" or an opening bracket is a capital.
std::string TitleOfWords(std::string_view text);

bool IsBlank(uint32_t code_point);
bool IsLetter(uint32_t code_point);
bool IsDigit(uint32_t code_point);
bool IsUpperCase(uint32_t code_point);
bool IsLowerCase(uint32_t code_point);
// Whether repr() shows the character as it is: no blank but " ", no control or format character, no
// private or unassigned one.
bool IsPrintable(uint32_t code_point);

// Strips characters of `set` (or blanks) from the ends.
std::string_view Strip(std::string_view text, bool from_left, bool from_right);
std::string_view StripSet(std::string_view text, std::string_view set, bool from_left,
                          bool from_right);

// The float with digits such as "2.5e-3", infinite or 0 beyond a float's range; nullopt: no number,
// or more than one.
std::optional<double> RealOfDigits(std::string_view digits);

// str.splitlines().
std::vector<std::string_view> SplitLines(std::string_view text);
// The lines of SplitLines(), each with the end of the line.
std::vector<std::string_view> SplitLinesWithEnds(std::string_view text);

// The text with the characters & < > " ' in HTML's spelling.
std::string EscapeHtml(std::string_view text);

}  // namespace moestro::jinja
