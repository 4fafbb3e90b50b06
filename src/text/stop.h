// SPDX-License-Identifier: MIT
// Finds stop strings in text that arrives in parts, holding back what might turn out to be one.
#pragma once

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

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string which_;
  bool found_ = false;
};

}  // namespace moestro
