// SPDX-License-Identifier: MIT
// Any bytes as requests on a connection: pieces of any size mean the same as all at once, no byte
// behind a request is taken with it, and an accepted head has one meaning only. The first byte is
// the size of pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "serve/http_message.h"

namespace moestro {
namespace {

struct Request {
  RequestHead head;
  std::string body;
  bool is_whole = false;
  bool is_wrong = false;
};

// Calls take(piece) until it takes less than all of a piece; returns how many bytes were taken.
template <class Take>
size_t TakePieces(std::string_view bytes, size_t piece, const Take& take) {
  size_t taken = 0;
  while (taken < bytes.size()) {
    const std::string_view next = bytes.substr(taken, piece);
    const size_t n = take(next);
    CHECK(n <= next.size());
    taken += n;
    if (n < next.size()) break;
  }
  return taken;
}

// Reads a request; returns the bytes behind it.
std::string_view Read(std::string_view bytes, size_t piece, Request& request) {
  const auto take_head = [&](std::string_view next) { return request.head.Push(next); };
  bytes.remove_prefix(TakePieces(bytes, piece, take_head));
  request.is_wrong = request.head.fault().status != 0;
  if (!request.head.is_over() || request.is_wrong) return bytes;
  if (!request.head.is_chunked()) {
    const size_t n = std::min<uint64_t>(request.head.length(), bytes.size());
    request.body = bytes.substr(0, n);
    request.is_whole = n == request.head.length();
    return bytes.substr(n);
  }
  ChunkReader chunks;
  const auto take_chunks = [&](std::string_view next) { return chunks.Push(next, request.body); };
  bytes.remove_prefix(TakePieces(bytes, piece, take_chunks));
  request.is_wrong = chunks.is_wrong();
  request.is_whole = chunks.is_over() && !request.is_wrong;
  return bytes;
}

size_t CountOf(std::string_view text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

void CheckHead(const RequestHead& head, std::string_view bytes) {
  const size_t end = bytes.find("\r\n\r\n");
  CHECK(end != bytes.npos);
  const std::string_view lines = bytes.substr(0, end);
  CHECK(CountOf(lines, "\n") == CountOf(lines, "\r\n"));
  CHECK(CountOf(lines, "\r") == CountOf(lines, "\r\n"));
  CHECK(CountOf(lines, "\n") <= RequestHead::kMostHeaders);
  CHECK(lines.size() <= RequestHead::kMostBytes + RequestHead::kMostTarget + 64);
  CHECK(!lines.contains('\0') && !lines.contains("\n ") && !lines.contains("\n\t"));
  CHECK(!head.method().empty() && (head.path().starts_with('/') || head.path() == "*"));
  CHECK(head.count("host") <= 1 && head.count("content-length") <= 1);
  CHECK(!head.is_chunked() || (head.length() == 0 && head.count("content-length") == 0));
  CHECK(head.is_chunked() == (head.count("transfer-encoding") == 1));
  for (const char* name : {"host", "x-request-id", "cookie"}) {
    const std::optional<std::string> value = head.header(name);
    CHECK(value.has_value() == (head.count(name) > 0));
    const std::string reply = HttpReplyHead(200, {{"X", value.value_or("")}});
    CHECK(CountOf(reply, "\n") == 3);
    static_cast<void>(head.query(name));
  }
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  while (!bytes.empty()) {
    moestro::Request whole;
    moestro::Request pieces;
    const std::string_view rest = moestro::Read(bytes, bytes.size(), whole);
    CHECK(moestro::Read(bytes, size_t{data[0]} + 1, pieces).size() == rest.size());
    CHECK(pieces.is_whole == whole.is_whole && pieces.is_wrong == whole.is_wrong);
    CHECK(pieces.body == whole.body && pieces.head.path() == whole.head.path());
    CHECK(pieces.head.fault().status == whole.head.fault().status);
    if (whole.head.is_over() && whole.head.fault().status == 0)
      moestro::CheckHead(whole.head, bytes);
    if (!whole.is_whole) return 0;
    bytes = rest;
  }
  return 0;
}
