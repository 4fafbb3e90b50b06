// SPDX-License-Identifier: MIT
#include "base/nearest_name.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr size_t kShortestBeginning = 3;

std::string_view WithoutDashes(std::string_view name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

}  // namespace

std::optional<size_t> EditDistance(std::string_view a, std::string_view b, size_t most) {
  const size_t longer = std::max(a.size(), b.size());
  most = std::min(most, longer);
  if (longer - std::min(a.size(), b.size()) > most) return std::nullopt;
  // Row i holds the distances of a's first i bytes from the beginnings of b. Only distances within
  // `most` of the diagonal can matter; `far` stands for all others.
  const size_t far = longer + 1;
  std::array<std::vector<size_t>, 3> rows;
  for (auto& row : rows) row.assign(b.size() + 1, far);
  for (size_t j = 0; j <= std::min(most, b.size()); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::vector<size_t>& now = rows[i % 3];
    const std::vector<size_t>& last = rows[(i + 2) % 3];
    const std::vector<size_t>& before = rows[(i + 1) % 3];
    const size_t first = i > most ? i - most : 0;
    const size_t end = std::min(b.size(), i + most);
    if (first > 0) now[first - 1] = far;
    for (size_t j = first; j <= end; ++j) {
      now[j] = last[j] + 1;
      if (j == 0) continue;
      const size_t exchanged = a[i - 1] == b[j - 1] ? 0 : 1;
      now[j] = std::min({now[j], now[j - 1] + 1, last[j - 1] + exchanged});
      const bool is_swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    if (end < b.size()) now[end + 1] = far;
  }
  const size_t distance = rows[a.size() % 3][b.size()];
  return distance <= most ? std::optional(distance) : std::nullopt;
}

std::optional<std::string> NearestName(std::string_view typed, std::span<const std::string> names) {
  const std::string_view wanted = WithoutDashes(typed);
  std::optional<std::pair<size_t, std::string>> nearest;
  std::optional<std::string> begun;
  for (const std::string& name : names) {
    const std::string_view here = WithoutDashes(name);
    const auto distance = EditDistance(wanted, here, std::max<size_t>(here.size() / 3, 1));
    if (distance && *distance < here.size() && (!nearest || *distance < nearest->first)) {
      nearest = {*distance, name};
    }
    if (wanted.size() >= kShortestBeginning && here.starts_with(wanted) && !begun) begun = name;
  }
  if (nearest && nearest->first <= 1) return nearest->second;
  if (begun) return begun;
  return nearest ? std::optional(nearest->second) : std::nullopt;
}

std::vector<std::string> NearestWords(std::string_view word, std::span<const std::string> words,
                                      size_t most) {
  constexpr size_t kLongest = 200;
  const std::string wanted = UpperCase(word);
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& other : words) {
    if (other.size() > kLongest || word.size() > kLongest) continue;
    const size_t most_letters = std::max<size_t>(2, word.size() / 2);
    const auto distance = EditDistance(wanted, UpperCase(other), most_letters);
    if (distance) near.emplace_back(*distance, other);
  }
  std::ranges::stable_sort(near, {}, &std::pair<size_t, std::string>::first);
  const auto repeated = std::ranges::unique(near, {}, &std::pair<size_t, std::string>::second);
  near.erase(repeated.begin(), repeated.end());
  std::vector<std::string> nearest;
  for (const auto& [distance, other] : near) {
    if (nearest.size() < most) nearest.push_back(other);
  }
  return nearest;
}

std::string NearestText(std::string_view word, std::span<const std::string> words) {
  constexpr size_t kMost = 3;
  std::vector<std::string> nearest = NearestWords(word, words, kMost);
  for (std::string& name : nearest) name = Printable(name);
  return nearest.empty() ? "" : "; nearest: " + Joined(nearest);
}

}  // namespace moestro
