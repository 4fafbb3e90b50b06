// SPDX-License-Identifier: MIT
#include "plot/svg.h"

#include "base/format.h"

namespace moestro {

std::string SvgEscaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string SvgDocument(const SvgPage& page, std::string_view title, std::string_view body) {
  return Format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' "
      "font-family='sans-serif' font-size='12'>\n<rect width='100%' height='100%' fill='#fff'/>\n"
      "{2}{3}</svg>\n",
      page.width, page.height, SvgText(page.middle, 18.0, "middle", title), body);
}

std::string SvgText(double x, double y, std::string_view anchor, std::string_view text) {
  return Format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}'>{}</text>\n", x, y, anchor,
                SvgEscaped(text));
}

}  // namespace moestro
