// SPDX-License-Identifier: MIT
// Text: formatted, as ASCII letters, as UTF-8, and the known name nearest to a mistyped one. Light:
// base/result.h includes it.
#pragma once

#include <cstddef>
#include <format>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro {

// std::format with its engine in one unit. The text and its arguments are checked at each call,
// formatting runs in text.cc: instantiating std::format in each caller took half of the build's
// time (4.5 s against 1.1 s for a file of one call, g++ 16 -O2 -g).

std::string FormatErased(std::string_view text, std::format_args args);

// Format("{} of {}", part, whole): the result of std::format().
template <class... Args>
std::string Format(std::format_string<Args...> text, Args&&... args) {
  return FormatErased(text.get(), std::make_format_args(args...));
}

// `text` without spaces, tabs and ends of lines around it.
std::string_view WithoutBlanks(std::string_view text);

std::string LowerCase(std::string_view text);
std::string UpperCase(std::string_view text);

// Large and small letters are alike. False if `text` is nothing but the ending.
bool IsNamedWith(std::string_view text, std::string_view ending);

// The files of a model that is named by its first part, name-00001-of-00003.gguf; for other names
// `path` alone.
std::vector<std::string> PartsOfSplit(const std::string& path);

// "a, b, c".
std::string Joined(std::span<const std::string> parts, std::string_view between = ", ");

// Well-formed UTF-8 as the Unicode standard defines it (table 3-7).

// The start of a text, read as one character.
struct Utf8Sequence {
  size_t length = 1;      // bytes to take
  bool is_valid = false;  // the bytes are a character
  bool is_open = false;   // valid so far, but the text ends before the character does
};
// REQUIRES: text is not empty.
Utf8Sequence ReadUtf8(std::string_view text);

// The byte offset of the first byte that is not valid UTF-8, or text.size().
size_t FindInvalidUtf8(std::string_view text);

// Finds the name that a mistyped name stands for. Pure.

// The number of single bytes to insert, leave out, exchange or swap with their neighbour to make
// `b` of `a`, none of them twice (optimal string alignment). std::nullopt: more than `most`, which
// shows after at most (a.size() + 1) * (2 * most + 1) comparisons.
std::optional<size_t> EditDistance(std::string_view a, std::string_view b, size_t most);

// The nearest of `names`, the first of several: at most a third of its bytes differ, or `typed` is
// its beginning, three bytes or more. Dashes in front of both count for nothing. std::nullopt: no
// name is near. The work is bounded by the lengths of the names, however long `typed` is.
std::optional<std::string> NearestName(std::string_view typed, std::span<const std::string> names);

// The nearest of `words` to `word` by the number of differing letters, at most `most`; dissimilar
// words are left out. Large and small letters are alike.
std::vector<std::string> NearestWords(std::string_view word, std::span<const std::string> words,
                                      size_t most);

// "; nearest: a, b, c" for the end of a message; empty if no word is similar.
std::string NearestText(std::string_view word, std::span<const std::string> words);

}  // namespace moestro
