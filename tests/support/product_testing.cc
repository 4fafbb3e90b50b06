// SPDX-License-Identifier: MIT
#include "tests/support/product_testing.h"

#include <algorithm>
#include <unordered_map>

namespace moestro {

Keys PairsOf(const Keys& a, const Keys& b) {
  Keys pairs;
  for (const std::string& left : a) {
    for (const std::string& right : b) pairs.push_back(left + " & " + right);
  }
  return pairs;
}

Keys Joined(Keys a, const std::vector<Keys>& others) {
  for (const Keys& other : others) a.insert(a.end(), other.begin(), other.end());
  return a;
}

namespace {

// Cells by the numbers of their keys.
std::vector<std::vector<size_t>> Numbered(std::span<const Keys> keys, size_t& n_keys) {
  std::unordered_map<std::string, size_t> numbers;
  std::vector<std::vector<size_t>> cells;
  for (const Keys& of_cell : keys) {
    std::vector<size_t>& cell = cells.emplace_back();
    for (const std::string& key : of_cell) {
      cell.push_back(numbers.emplace(key, numbers.size()).first->second);
    }
    std::ranges::sort(cell);
    cell.erase(std::ranges::unique(cell).begin(), cell.end());
  }
  n_keys = numbers.size();
  return cells;
}

// A cell's worth to the cover: keys that the cover lacks, then how seldom it has the others.
struct Worth {
  size_t n_new = 0;
  size_t n_uses = 0;
  bool operator>(const Worth& other) const {
    return n_new != other.n_new ? n_new > other.n_new : n_uses < other.n_uses;
  }
};

std::vector<bool> CoverOf(std::span<const Keys> keys) {
  size_t n_keys = 0;
  const std::vector<std::vector<size_t>> cells = Numbered(keys, n_keys);
  std::vector<size_t> uses(n_keys);
  std::vector<bool> is_cover(cells.size());
  for (;;) {
    Worth most;
    size_t chosen = cells.size();
    for (size_t i = 0; i < cells.size(); ++i) {
      Worth worth;
      for (const size_t key : cells[i]) {
        worth.n_new += uses[key] == 0 ? 1U : 0U;
        worth.n_uses += uses[key];
      }
      if (worth.n_new == 0 || !(worth > most)) continue;
      most = worth;
      chosen = i;
    }
    if (chosen == cells.size()) return is_cover;
    is_cover[chosen] = true;
    for (const size_t key : cells[chosen]) ++uses[key];
  }
}

}  // namespace

std::vector<uint32_t> PartsOf(std::span<const Keys> keys) {
  const std::vector<bool> is_cover = CoverOf(keys);
  std::vector<uint32_t> parts(keys.size());
  uint32_t n_others = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!is_cover[i]) parts[i] = 1 + n_others++ % kSlices;
  }
  return parts;
}

}  // namespace moestro
