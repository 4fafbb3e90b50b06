// SPDX-License-Identifier: MIT
// Finds stop strings in text that arrives in parts, holding back what might turn out to be one.
// Takes time in proportion to the text and the number of stop strings, whatever these are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {

class StopMatcher {
 public:
  // Empty strings among `stops` are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  // Adds text and returns what is certain to lie before any stop string. Once one has been found,
  // everything from its first byte on is dropped.
  std::string Push(std::string_view text);
  bool found() const { return found_; }
  const std::string& which() const { return which_; }  // was found; empty: none
  // The text still held back, when no more is to come.
  std::string Flush();
  // Characters that have been compared.
  uint64_t steps() const { return steps_; }

 private:
  struct Search {
    explicit Search(std::string text);
    std::string stop;
    std::vector<size_t> fallback;  // [n]: of its first n, how many both begin and end them
    size_t matched = 0;            // of its characters, at the end of all text
  };
  // Where in `text` the stop string has been found to end.
  std::optional<size_t> EndIn(std::string_view text, Search& search);

  std::vector<Search> searches_;
  std::string held_;
  uint64_t steps_ = 0;
  std::string which_;
  bool found_ = false;
};

}  // namespace moestro
