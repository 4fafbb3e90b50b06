// SPDX-License-Identifier: MIT
// Text for a terminal. Names, files and peers can bring anything, escape sequences among it, so
// everything that is printed goes through a function or class of this header.
//
// Thread rule: none, any thread may call.
#pragma once

#include <string>
#include <string_view>

namespace moestro {

// Replaces characters that a terminal obeys instead of showing (control characters, line ends,
// marks that turn the direction of text) by "\u001b", and bytes that are no UTF-8 by "\xff". JSON
// keeps its meaning.
std::string Visible(std::string_view text);
// Like Visible(), but keeps line ends and tabs, for text that is laid out in lines.
std::string VisibleLines(std::string_view text);

// Makes a model's text fit for a terminal: keeps line ends, tabs and all scripts, replaces control
// characters. Takes the text in parts, and gives out each byte as it comes.
class VisibleStream {
 public:
  std::string Add(std::string_view part);

 private:
  bool may_be_control_ = false;  // the last byte began a character of which some are controls
};

// Onto standard error, laid out in lines.
void PrintOnStderr(std::string_view text);

}  // namespace moestro
