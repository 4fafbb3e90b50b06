// SPDX-License-Identifier: MIT
#include "plot/heat_map.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/format.h"
#include "plot/svg.h"

namespace moestro {
namespace {

constexpr double kCell = 14.0;
constexpr double kMapLeft = 60.0;
constexpr double kMapTop = 60.0;
constexpr double kNarrowest = 640.0;  // for the title and the notes
constexpr double kNoteStep = 18.0;

// White to dark blue.
std::string Shade(double share) {
  const auto mix = [&](double from, double to) {
    return static_cast<int>(std::lround(from + (to - from) * share));
  };
  return Format("#{:02x}{:02x}{:02x}", mix(247, 8), mix(251, 48), mix(255, 107));
}

std::string DrawCell(const HeatCell& cell, double x, double y) {
  const std::string fill = cell.share ? Shade(std::clamp(*cell.share, 0.0, 1.0)) : "none";
  std::string svg = Format(
      "<rect x='{:.1f}' y='{:.1f}' width='{}' height='{}' fill='{}' stroke='#ddd'>"
      "<title>{}</title></rect>\n",
      x, y, kCell, kCell, fill, SvgEscaped(cell.tip));
  if (cell.is_marked) {
    svg += Format("<circle cx='{:.1f}' cy='{:.1f}' r='2.5' fill='#e69f00'/>\n", x + kCell / 2.0,
                  y + kCell / 2.0);
  }
  return svg;
}

}  // namespace

std::string DrawHeatMap(const HeatMap& map) {
  std::string body;
  for (uint32_t r = 0; r < map.rows; ++r) {
    const double y = kMapTop + kCell * r;
    body += SvgText(kMapLeft - 6.0, y + kCell - 3.0, "end", Format("{}", r));
    for (uint32_t c = 0; c < map.columns; ++c) {
      body += DrawCell(map.cells[size_t{r} * map.columns + c], kMapLeft + kCell * c, y);
    }
  }
  body += SvgText(kMapLeft - 6.0, kMapTop - 8.0, "end", map.row_label);
  body += SvgText(kMapLeft, kMapTop - 8.0, "start", map.column_label);
  double y = kMapTop + kCell * map.rows + 2.0;
  for (const std::string& note : map.notes)
    body += SvgText(kMapLeft, y += kNoteStep, "start", note);
  const double width = std::max(kMapLeft + kCell * map.columns + 20.0, kNarrowest);
  return SvgDocument({.width = width, .height = y + 12.0, .middle = width / 2.0}, map.title, body);
}

}  // namespace moestro
