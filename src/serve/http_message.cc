// SPDX-License-Identifier: MIT
#include "serve/http_message.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/text.h"

namespace moestro {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr size_t kMostRequestLine = RequestHead::kMostTarget + 64;
constexpr size_t kMostDigits = 19;     // of a length: no number of bytes has more
constexpr size_t kMostHexDigits = 15;  // of a chunk's size
constexpr const char* kNoRequest = "this is no HTTP request";
constexpr const char* kLongTarget = "the request's path and query have more than 8 KiB";

bool IsControl(char c) { return (c >= '\0' && c < ' ' && c != '\t') || c == '\x7f'; }
bool IsNameByte(char c) { return c > ' ' && c <= '~' && c != ':'; }
bool IsTargetByte(char c) { return c != ' ' && c != '\t' && c != '#' && !IsControl(c); }
bool IsDecimal(char c) { return c >= '0' && c <= '9'; }
char InLowerCase(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

bool IsSame(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::ranges::equal(a, b, {}, InLowerCase, InLowerCase);
}

// Moves bytes from `from` to `line` until the line's end or `most` bytes. False: the line goes on.
bool TakeLine(std::string_view& from, std::string& line, size_t most) {
  const size_t end = from.find('\n');
  const size_t n = std::min(end == from.npos ? from.size() : end + 1, most - line.size());
  line += from.substr(0, n);
  from.remove_prefix(n);
  return line.ends_with('\n') || line.size() == most;
}

// "name: value" without a line end. A line that begins with a blank continues another one, which no
// client may send any more (RFC 9112, 5.2).
bool IsHeader(std::string_view line) {
  const size_t colon = line.find(':');
  return colon != line.npos && colon > 0 &&
         std::ranges::all_of(line.substr(0, colon), IsNameByte) &&
         std::ranges::none_of(line, IsControl);
}

// "%41" is A; a percent sign without two digits stays. Plus signs are blanks in a query alone.
std::string Decoded(std::string_view text, bool is_query) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    const bool is_coded = text[i] == '%' && i + 2 < text.size() &&
                          std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    if (is_coded) i += 2;
    out += is_coded ? static_cast<char>(byte) : is_query && text[i] == '+' ? ' ' : text[i];
  }
  return out;
}

// The reasons of statuses. Another one has none, which a reply may have (RFC 9112, 4).
constexpr std::string_view kReasons =
    "200 OK|204 No Content|400 Bad Request|401 Unauthorized|403 Forbidden|404 Not Found|"
    "405 Method Not Allowed|408 Request Timeout|409 Conflict|413 Payload Too Large|"
    "414 URI Too Long|415 Unsupported Media Type|421 Misdirected Request|429 Too Many Requests|"
    "431 Request Header Fields Too Large|500 Internal Server Error|501 Not Implemented|"
    "503 Service Unavailable|504 Gateway Timeout|";

// "404 Not Found".
std::string WithReason(int status) {
  const std::string code = std::to_string(status) + " ";
  const size_t at = kReasons.find(code);
  return at == kReasons.npos ? code : std::string(kReasons.substr(at, kReasons.find('|', at) - at));
}

}  // namespace

bool HasIgnoringCase(std::string_view text, std::string_view part) {
  return !std::ranges::search(text, part, {}, InLowerCase, InLowerCase).empty() || part.empty();
}

size_t RequestHead::Push(std::string_view bytes) {
  std::string_view rest = bytes;
  while (!is_over_ && !rest.empty()) {
    const bool has_request_line = !method_.empty();
    const size_t most = has_request_line ? kMostBytes + 1 - bytes_ : kMostRequestLine;
    if (!TakeLine(rest, line_, most)) break;
    if (has_request_line && line_.size() == most) {
      Refuse(431, "the request has more than 16 KiB of headers");
      is_over_ = true;
    } else if (!has_request_line && !line_.ends_with('\n')) {
      Refuse(414, kLongTarget);
      is_over_ = true;
    } else {
      EndLine();
    }
    line_.clear();
  }
  return bytes.size() - rest.size();
}

void RequestHead::EndLine() {
  const bool has_request_line = !method_.empty();
  if (has_request_line) bytes_ += line_.size();
  std::string_view line = line_;
  const bool is_line = line.ends_with(kLineEnd);
  if (is_line) line.remove_suffix(kLineEnd.size());
  if (!has_request_line) {
    if (is_line) ReadRequestLine(line);
    if (method_.empty()) Refuse(400, kNoRequest);
    is_over_ = fault_.status != 0;
  } else if (is_line && line.empty()) {
    is_over_ = true;
    EndHead();
  } else if (is_line && IsHeader(line)) {
    ReadHeader(line);
  } else {
    Refuse(400, "a line of the request's head is no header");
  }
}

// "POST /path?query HTTP/1.1". Leaves the method empty if the line is none.
void RequestHead::ReadRequestLine(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == line.npos || last == first) return;
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  is_current_ = version == "HTTP/1.1";
  const bool is_right = !method.empty() && std::ranges::all_of(method, IsNameByte) &&
                        !target.empty() && std::ranges::all_of(target, IsTargetByte) &&
                        (is_current_ || version == "HTTP/1.0");
  if (!is_right) return;
  method_ = method;
  if (target.size() > kMostTarget) return Refuse(414, kLongTarget);
  const size_t mark = std::min(target.find('?'), target.size());
  path_ = Decoded(target.substr(0, mark), false);
  query_ = target.substr(std::min(mark + 1, target.size()));
}

void RequestHead::ReadHeader(std::string_view line) {
  if (headers_.size() == kMostHeaders) return Refuse(431, "the request has more than 100 headers");
  const size_t colon = line.find(':');
  headers_.emplace_back(line.substr(0, colon), WithoutBlanks(line.substr(colon + 1)));
}

// Looks at the head as a whole.
void RequestHead::EndHead() {
  const std::optional<std::string> encoding = header("Transfer-Encoding");
  const std::optional<std::string> length = header("Content-Length");
  if (encoding && (!is_current_ || count("Transfer-Encoding") > 1 || !IsSame(*encoding, "chunked")))
    return Refuse(501, "a body comes with its length, or in chunks");
  is_chunked_ = encoding.has_value();
  const bool is_number = length && !length->empty() && length->size() <= kMostDigits &&
                         std::ranges::all_of(*length, IsDecimal);
  if (length && (is_chunked_ || count("Content-Length") > 1 || !is_number))
    return Refuse(400, "the request does not say plainly where its body ends");
  if (length) std::from_chars(length->data(), length->data() + length->size(), length_);
  if (has_body() && !IsSame(header("Content-Encoding").value_or("identity"), "identity"))
    return Refuse(415, "a body comes as it is, without Content-Encoding");
  if (count("Host") > 1 || count("Origin") > 1 ||
      (!path_.starts_with('/') && (method_ != "OPTIONS" || path_ != "*")))
    return Refuse(400, "a request has one Host, one Origin, and a path as its target");
}

void RequestHead::Refuse(int status, std::string_view message) {
  if (fault_.status == 0) fault_ = {.status = status, .message = message};
}

std::optional<std::string> RequestHead::header(std::string_view name) const {
  for (const auto& [known, value] : headers_) {
    if (IsSame(known, name)) return value;
  }
  return std::nullopt;
}

size_t RequestHead::count(std::string_view name) const {
  return static_cast<size_t>(std::ranges::count_if(
      headers_, [&](const auto& header) { return IsSame(header.first, name); }));
}

std::optional<std::string> RequestHead::query(std::string_view name) const {
  for (std::string_view rest = query_; !rest.empty();) {
    const size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view field = rest.substr(0, end);
    const size_t mark = std::min(field.find('='), field.size());
    if (Decoded(field.substr(0, mark), true) == name)
      return Decoded(field.substr(std::min(mark + 1, field.size())), true);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return std::nullopt;
}

size_t ChunkReader::Push(std::string_view bytes, std::string& body) {
  std::string_view rest = bytes;
  while (!is_over() && !rest.empty()) {
    if (expects_ == Expecting::kData) {
      const size_t n = std::min<uint64_t>(left_, rest.size());
      body += rest.substr(0, n);
      rest.remove_prefix(n);
      left_ -= n;
      if (left_ == 0) expects_ = Expecting::kDataEnd;
    } else if (TakeLine(rest, line_,
                        expects_ == Expecting::kDataEnd ? kLineEnd.size() : kMostLine)) {
      std::string_view line = line_;
      const bool is_line = line.ends_with(kLineEnd);
      if (is_line) line.remove_suffix(kLineEnd.size());
      expects_ = is_line ? AfterLine(line) : Expecting::kWrong;
      line_.clear();
    }
  }
  return bytes.size() - rest.size();
}

ChunkReader::Expecting ChunkReader::AfterLine(std::string_view line) {
  if (expects_ == Expecting::kDataEnd)
    return Expecting::kSize;  // TakeLine() has let no byte before the end
  if (expects_ == Expecting::kTrailer) {
    if (line.empty()) return Expecting::kOver;
    trailers_ += line.size() + kLineEnd.size();
    return IsHeader(line) && trailers_ <= kMostTrailers ? Expecting::kTrailer : Expecting::kWrong;
  }
  const auto [after, error] = std::from_chars(line.begin(), line.end(), left_, 16);
  const auto digits = static_cast<size_t>(after - line.begin());
  const std::string_view extension = line.substr(digits);
  const bool has_extension = WithoutBlanks(extension).starts_with(';');
  if (error != std::errc() || digits > kMostHexDigits || (!extension.empty() && !has_extension) ||
      std::ranges::any_of(extension, IsControl))
    return Expecting::kWrong;
  return left_ > 0 ? Expecting::kData : Expecting::kTrailer;
}

std::string HttpReplyHead(int status, const HttpHeaders& headers) {
  std::string head = "HTTP/1.1 " + WithReason(status) + "\r\n";
  for (const auto& [name, value] : headers) {
    if (std::ranges::any_of(value, IsControl)) continue;
    head.append(name).append(": ").append(value).append(kLineEnd);
  }
  return head.append(kLineEnd);
}

std::string ChunkOf(std::string_view bytes) {
  std::array<char, 16> digits{};
  char* const end = std::to_chars(digits.begin(), digits.end(), bytes.size(), 16).ptr;
  return std::string(digits.begin(), end).append(kLineEnd).append(bytes).append(kLineEnd);
}

}  // namespace moestro
