// SPDX-License-Identifier: MIT
// Parts that all drawings share.
#pragma once

#include <string>
#include <string_view>

namespace moestro {

// A whole drawing on white. `title` may hold any text and stands at the top, around `middle`.
struct SvgPage {
  double width = 0.0;
  double height = 0.0;
  double middle = 0.0;
};
std::string SvgDocument(const SvgPage& page, std::string_view title, std::string_view body);

// Any text as it may stand in a document.
std::string SvgEscaped(std::string_view text);

// `anchor` is start, middle or end.
std::string SvgText(double x, double y, std::string_view anchor, std::string_view text);

}  // namespace moestro
