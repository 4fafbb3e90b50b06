// SPDX-License-Identifier: MIT
// The head of a request on the way to httplib, which takes it apart. Ours are:
// - httplib refuses a header line above 8 KiB, a number that is compiled into the library. A longer
//   line goes past httplib. HttpServerTest.TakesALongHeaderWholeAndTheBodyAfterIt fails without.
// - httplib decodes "%41" in a header, which is in no standard. A line with a percent sign goes
// past
//   httplib as well. HttpServerTest.APercentSignInAHeaderStaysAsItIs fails without.
// - httplib passes over header lines that are none (without a colon, with a bare line end), where a
//   proxy before it may have found a header. HttpServerTest.RefusesHeaderLinesThatAreNone fails
//   without.
// - httplib reads a chunk's size as strtoul does ("0x10", "+10", "-10") and takes bare line ends
//   behind it. HttpServerTest.RefusesChunksThatOthersMayReadOtherwise fails without.
// - httplib has no limit for all headers together. The tests RefusesTooManyBytesOfHeaders and
//   RefusesALineOfMoreThanAllHeadersMayHave of HttpServerTest fail without.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro {

// Whether `text` contains `part`; the case of ASCII letters does not count.
bool HasIgnoringCase(std::string_view text, std::string_view part);

class HttpHead {
 public:
  static constexpr size_t kMostBytes = 16 * 1024;  // bytes of all headers, line ends included

  // Returns the part of the next bytes that httplib gets. After the head that is all bytes. When
  // the head becomes too long, httplib gets an empty line and no byte after it.
  std::string Push(std::string_view bytes);
  bool is_over() const { return is_over_; }
  bool is_too_long() const { return is_too_long_; }
  // A line was no header, and did not go to httplib.
  bool is_malformed() const { return is_malformed_; }
  // Headers whose lines went past httplib.
  const std::vector<std::pair<std::string, std::string>>& put_aside() const { return put_aside_; }

 private:
  void EndLine(std::string& out);

  std::string line_;  // the header that has begun
  size_t bytes_ = 0;  // bytes of headers so far
  bool has_request_line_ = false;
  bool is_over_ = false;
  bool is_too_long_ = false;
  bool is_malformed_ = false;
  std::vector<std::pair<std::string, std::string>> put_aside_;
};

// A chunked body on its way to httplib: sizes in hexadecimal digits, extensions and trailers on
// lines that end as lines do, and nothing else (RFC 9112, 7.1). A program that accepts more would
// find another end of the body.
class ChunkFrames {
 public:
  static constexpr size_t kMostExtension = 4096;     // bytes of a chunk
  static constexpr size_t kMostTrailer = 16 * 1024;  // bytes of all

  // False, then and ever after, if the bytes are no such body. Bytes behind the body are the next
  // request's.
  bool Push(std::string_view bytes);

 private:
  enum class At : uint8_t {
    kSize,
    kAfterSize,  // behind a size, before an extension
    kExtension,
    kSizeLineFeed,
    kData,
    kDataReturn,
    kDataLineFeed,
    kTrailer,  // begins, or the last line
    kTrailerName,
    kTrailerValue,
    kTrailerLineFeed,
    kLastLineFeed,
    kOver,
    kWrong
  };
  At Next(char c);
  At OfSize(char c);

  At at_ = At::kSize;
  uint64_t size_ = 0;   // bytes of the chunk; in kData the part still to come
  size_t digits_ = 0;   // digits of the size so far
  size_t counted_ = 0;  // bytes of the extension, or of trailers
};

}  // namespace moestro
