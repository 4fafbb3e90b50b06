// SPDX-License-Identifier: MIT
// The head of a request on the way to httplib, which takes it apart. Ours are:
// - httplib refuses a header line above 8 KiB, a number that is compiled into the library. A longer
//   line goes past httplib. HttpServerTest.TakesALongHeaderWholeAndTheBodyAfterIt fails without.
// - httplib decodes "%41" in a header, which no standard says. A line with a percent sign goes past
//   httplib as well. HttpServerTest.APercentSignInAHeaderStaysAsItIs fails without.
// - httplib has no limit for all headers together. The tests RefusesTooManyBytesOfHeaders and
//   RefusesALineOfMoreThanAllHeadersMayHave of HttpServerTest fail without.
// Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro {

// Whether `text` contains `part`; the case of ASCII letters does not count.
bool HasIgnoringCase(std::string_view text, std::string_view part);

class HttpHead {
 public:
  static constexpr size_t kMostBytes = 16 * 1024;  // of headers, line ends included

  // The part of the next bytes that httplib gets. After the head that is all bytes. When the head
  // becomes too long, httplib gets an empty line and no byte after it.
  std::string Push(std::string_view bytes);
  bool is_over() const { return is_over_; }
  bool is_too_long() const { return is_too_long_; }
  // The headers whose lines go past httplib.
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
