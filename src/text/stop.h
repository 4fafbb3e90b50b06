// SPDX-License-Identifier: MIT
// Finds stop strings in text that arrives in parts. Holds back text that may be the start of a stop
// string. Takes time in proportion to the length of the text and the number of stop strings.
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

  // Adds text and returns what is certain to lie before any stop string. After a stop string is
  // found, all text from its first byte on is dropped.
  std::string Push(std::string_view text);
  bool found() const { return found_; }
  // the stop string that was found; empty: none
  const std::string& which() const { return which_; }
  // The text that is still held back, at the end of the input.
  std::string Flush();
  // Characters that have been compared.
  uint64_t steps() const { return steps_; }

 private:
  struct Search {
    explicit Search(std::string text);
    std::string stop;
    // [n]: the length of the longest string that both begins and ends the first n characters
    std::vector<size_t> fallback;
    size_t matched = 0;  // characters of the stop string that the end of the text matches
  };
  // The place in `text` where the stop string ends.
  std::optional<size_t> EndIn(std::string_view text, Search& search);

  std::vector<Search> searches_;
  std::string held_;
  uint64_t steps_ = 0;
  std::string which_;
  bool found_ = false;
};

}  // namespace moestro
