// SPDX-License-Identifier: MIT
#include "serve/http_head.h"

#include <algorithm>

namespace moestro {
namespace {

constexpr size_t kLongestLine = 8192;  // of a line for httplib, line end included
constexpr std::string_view kLineEnd = "\r\n";

// "name: value" without the blanks around the value; an empty name: no header.
std::pair<std::string, std::string> HeaderOf(std::string_view line) {
  line.remove_suffix(kLineEnd.size());
  const size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  const bool is_name = colon != std::string_view::npos &&
                       std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~'; });
  if (!is_name) return {};
  const size_t begin = line.find_first_not_of(" \t", colon + 1);
  if (begin == std::string_view::npos) return {std::string(name), ""};
  const size_t end = line.find_last_not_of(" \t");
  return {std::string(name), std::string(line.substr(begin, end + 1 - begin))};
}

bool IsNameByte(char c) { return c > ' ' && c <= '~' && c != ':'; }

bool IsControl(char c) { return (c >= '\0' && c < ' ' && c != '\t') || c == '\x7f'; }

// True for "name: value" and its end. A line that begins with a blank continues another one, which
// no client may send any more (RFC 9112, 5.2).
bool IsHeaderLine(std::string_view line) {
  if (!line.ends_with(kLineEnd)) return false;
  line.remove_suffix(kLineEnd.size());
  const size_t colon = line.find(':');
  return colon != std::string_view::npos && colon > 0 &&
         std::ranges::all_of(line.substr(0, colon), IsNameByte) &&
         std::ranges::none_of(line, IsControl);
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool ChunkFrames::Push(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size() && at_ != At::kOver && at_ != At::kWrong;) {
    if (at_ == At::kData) {
      const size_t n = std::min<uint64_t>(size_, bytes.size() - i);
      size_ -= n;
      i += n;
      if (size_ == 0) at_ = At::kDataReturn;
      continue;
    }
    at_ = Next(bytes[i]);
    ++i;
  }
  return at_ != At::kWrong;
}

ChunkFrames::At ChunkFrames::OfSize(char c) {
  constexpr size_t kMostDigits = 15;  // no number of bytes has more
  const int digit = HexDigit(c);
  if (digit >= 0 && at_ == At::kSize) {
    size_ = (size_ << 4U) | static_cast<uint64_t>(digit);
    return ++digits_ <= kMostDigits ? At::kSize : At::kWrong;
  }
  if (digits_ == 0) return At::kWrong;
  counted_ = 0;
  if (c == ' ' || c == '\t') return At::kAfterSize;
  if (c == ';') return At::kExtension;
  return c == '\r' && at_ == At::kSize ? At::kSizeLineFeed : At::kWrong;
}

ChunkFrames::At ChunkFrames::Next(char c) {
  const auto must = [c](char wanted, At then) { return c == wanted ? then : At::kWrong; };
  switch (at_) {
    case At::kSize:
    case At::kAfterSize:
      return OfSize(c);
    case At::kExtension:
      if (c == '\r') return At::kSizeLineFeed;
      return IsControl(c) || ++counted_ > kMostExtension ? At::kWrong : At::kExtension;
    case At::kSizeLineFeed:
      digits_ = 0;
      counted_ = 0;
      return must('\n', size_ > 0 ? At::kData : At::kTrailer);
    case At::kDataReturn:
      return must('\r', At::kDataLineFeed);
    case At::kDataLineFeed:
      return must('\n', At::kSize);
    case At::kTrailer:
      if (c == '\r') return At::kLastLineFeed;
      return IsNameByte(c) && ++counted_ <= kMostTrailer ? At::kTrailerName : At::kWrong;
    case At::kTrailerName:
      if (c == ':') return At::kTrailerValue;
      return IsNameByte(c) && ++counted_ <= kMostTrailer ? At::kTrailerName : At::kWrong;
    case At::kTrailerValue:
      if (c == '\r') return At::kTrailerLineFeed;
      return IsControl(c) || ++counted_ > kMostTrailer ? At::kWrong : At::kTrailerValue;
    case At::kTrailerLineFeed:
      return must('\n', At::kTrailer);
    case At::kLastLineFeed:
      return must('\n', At::kOver);
    case At::kData:
    case At::kOver:
    case At::kWrong:
      break;
  }
  return at_;
}

bool HasIgnoringCase(std::string_view text, std::string_view part) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return !std::ranges::search(text, part, {}, lower, lower).empty() || part.empty();
}

std::string HttpHead::Push(std::string_view bytes) {
  if (is_too_long_) return {};
  std::string out;
  out.reserve(bytes.size());
  size_t at = 0;
  for (; at < bytes.size() && !is_over_; ++at) {
    const char c = bytes[at];
    if (!has_request_line_) {  // httplib limits the request line itself
      out += c;
      has_request_line_ = c == '\n';
      continue;
    }
    line_ += c;
    if (++bytes_ > kMostBytes) {
      is_too_long_ = true;
      is_over_ = true;
      return out += kLineEnd;
    }
    if (c == '\n') EndLine(out);
  }
  return out += bytes.substr(at);
}

void HttpHead::EndLine(std::string& out) {
  is_over_ = line_ == kLineEnd;
  if (!is_over_ && !IsHeaderLine(line_)) {
    is_malformed_ = true;
    line_.clear();
    return;
  }
  const bool goes_past = line_.size() > kLongestLine || line_.contains('%');
  std::pair<std::string, std::string> header;
  if (goes_past && line_.ends_with(kLineEnd)) header = HeaderOf(line_);
  if (header.first.empty()) {
    out += line_;
  } else {
    put_aside_.push_back(std::move(header));
  }
  line_.clear();
}

}  // namespace moestro
