// SPDX-License-Identifier: MIT
#include "lab/unvisited.h"

#include <numeric>

#include "base/format.h"

namespace moestro {

std::string UnvisitedText(std::span<const uint32_t> unvisited, uint32_t experts) {
  const auto all = std::accumulate(unvisited.begin(), unvisited.end(), uint64_t{0});
  std::string text = Format("unvisited  {} of {} experts", all, unvisited.size() * experts);
  std::string_view mark = ": ";
  for (size_t l = 0; l < unvisited.size(); ++l) {
    if (unvisited[l] == 0) continue;
    text += Format("{}{} in layer {}", mark, unvisited[l], l);
    mark = ", ";
  }
  return text + "\n";
}

}  // namespace moestro
