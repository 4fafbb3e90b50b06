// SPDX-License-Identifier: MIT
#include "serve/http_head.h"

#include <algorithm>

namespace moestro {
namespace {

constexpr size_t kLongestLine = 8192;  // that httplib takes, line end included
constexpr std::string_view kLineEnd = "\r\n";

// "name: value" without the blanks around the value; an empty name: it is none.
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

}  // namespace

bool HasIgnoringCase(std::string_view text, std::string_view part) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return !std::ranges::search(text, part, {}, lower, lower).empty() || part.empty();
}

std::string HttpHead::Push(std::string_view bytes) {
  if (is_too_long_) return {};
  std::string out;
  size_t at = 0;
  for (; at < bytes.size() && !is_over_; ++at) {
    const char c = bytes[at];
    if (!has_request_line_) {  // httplib limits it itself
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
