// SPDX-License-Identifier: MIT
// The beginning of a request, up to the empty line, on its way to httplib: that takes no line of
// headers above 8 KiB (a number inside of the library), so longer ones go past it. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro {

// Letters of either case are the same, as in names of fields and in many of their values.
bool HasIgnoringCase(std::string_view text, std::string_view part);

class HttpHead {
 public:
  static constexpr size_t kMostBytes = 16 * 1024;  // of headers, line ends included

  // What httplib shall see of the next bytes that came. After the head that is all of them; once
  // is_too_long(), an empty line and then nothing.
  std::string Push(std::string_view bytes);
  bool is_over() const { return is_over_; }
  bool is_too_long() const { return is_too_long_; }
  // Headers of lines that were too long for httplib.
  const std::vector<std::pair<std::string, std::string>>& put_aside() const { return put_aside_; }

 private:
  void EndLine(std::string& out);

  std::string line_;  // the header that has begun
  size_t bytes_ = 0;  // of headers so far
  bool has_request_line_ = false;
  bool is_over_ = false;
  bool is_too_long_ = false;
  std::vector<std::pair<std::string, std::string>> put_aside_;
};

}  // namespace moestro
