// SPDX-License-Identifier: MIT
// A grid of cells, each the darker the larger its value, as an SVG document.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moestro {

struct HeatCell {
  std::optional<double> share;  // 0 is white, 1 dark blue; nullopt: not filled
  std::string tip = {};         // shown under a pointer
  bool is_marked = false;       // with a dot
};

struct HeatMap {
  std::string title;  // any text
  std::string row_label;
  std::string column_label;
  uint32_t rows = 0;
  uint32_t columns = 0;
  std::vector<HeatCell> cells;     // [row][column]
  std::vector<std::string> notes;  // a line each, below
};

// REQUIRES: cells.size() == rows * columns.
std::string DrawHeatMap(const HeatMap& map);

}  // namespace moestro
