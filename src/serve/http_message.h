// SPDX-License-Identifier: MIT
// HTTP/1.1 as bytes: reads a request's head and chunks, writes a reply's head and chunks.
//
// Whatever a proxy before this server might read otherwise is refused, so that both find the same
// requests (RFC 9112): ends of lines without a carriage return, control characters, lines without a
// colon or with a blank before it, lines that continue others, two lengths, a length beside an
// encoding, encodings other than chunks, sizes that are more than digits, two hosts or origins, a
// host in the target.
//
// Pure. Not shared between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro {

// Whether `text` contains `part`; the case of ASCII letters does not count.
bool HasIgnoringCase(std::string_view text, std::string_view part);

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// Why a request is refused.
struct HttpFault {
  int status = 0;  // 0: no fault
  std::string_view message = {};
};

class RequestHead {
 public:
  static constexpr size_t kMostTarget = 8 * 1024;  // bytes of path and query
  static constexpr size_t kMostBytes = 16 * 1024;  // bytes of all headers, line ends included
  static constexpr size_t kMostHeaders = 100;

  // Takes the next bytes up to the end of the head; returns how many bytes that were. Bytes behind
  // a fault may be part of anything.
  size_t Push(std::string_view bytes);
  // The head is whole, or too faulty to read on.
  bool is_over() const { return is_over_; }
  // The first fault. A head with a fault may lack any of the below.
  const HttpFault& fault() const { return fault_; }

  const std::string& method() const { return method_; }
  const std::string& path() const { return path_; }  // decoded, without the query
  bool is_current() const { return is_current_; }    // HTTP/1.1, not 1.0
  // The value without blanks around it; the first of several. The name's case does not count.
  std::optional<std::string> header(std::string_view name) const;
  size_t count(std::string_view name) const;  // headers of that name
  // A field of the query, decoded; the first of several.
  std::optional<std::string> query(std::string_view name) const;

  // The body behind the head: in chunks, or of `length` bytes.
  bool is_chunked() const { return is_chunked_; }
  uint64_t length() const { return length_; }
  bool has_body() const { return is_chunked_ || length_ > 0; }

 private:
  void EndLine();
  void ReadRequestLine(std::string_view line);
  void ReadHeader(std::string_view line);
  void EndHead();
  void Refuse(int status, std::string_view message);

  std::string line_;  // the line that has begun
  size_t bytes_ = 0;  // of headers so far
  bool is_over_ = false;
  HttpFault fault_;
  std::string method_;
  std::string path_;
  std::string query_;
  bool is_current_ = false;
  HttpHeaders headers_;
  bool is_chunked_ = false;
  uint64_t length_ = 0;
};

// A body that comes in chunks, with extensions and trailers, which are passed over.
class ChunkReader {
 public:
  static constexpr size_t kMostLine = 4096;       // bytes of a size and its extension, or a trailer
  static constexpr size_t kMostTrailers = 16384;  // bytes of all

  // Appends the body's next bytes to `body`, and returns how many bytes were taken. Bytes behind
  // the body, or behind a fault, are not taken.
  size_t Push(std::string_view bytes, std::string& body);
  bool is_over() const { return expects_ == Expecting::kOver || expects_ == Expecting::kWrong; }
  bool is_wrong() const { return expects_ == Expecting::kWrong; }

 private:
  enum class Expecting : uint8_t { kSize, kData, kDataEnd, kTrailer, kOver, kWrong };
  Expecting AfterLine(std::string_view line);

  Expecting expects_ = Expecting::kSize;
  uint64_t left_ = 0;    // bytes of the chunk still to come
  size_t trailers_ = 0;  // bytes so far
  std::string line_;     // the line that has begun
};

// The head of a reply up to its empty line. A header that would end a line is left out.
std::string HttpReplyHead(int status, const HttpHeaders& headers);
// A chunk of a reply. REQUIRES: `bytes` is not empty; the empty chunk ends a reply.
std::string ChunkOf(std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace moestro
