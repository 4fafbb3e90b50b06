// SPDX-License-Identifier: MIT
#include "house/passed_reply.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/number.h"
#include "base/text.h"

namespace moestro {
namespace {

// Headers of the worker's own connection, and those that the house's server writes itself.
constexpr std::array<std::string_view, 12> kKept = {
    "connection",   "keep-alive", "transfer-encoding",      "content-length",
    "content-type", "server",     "x-request-id",           "x-session-id",
    "vary",         "date",       "x-content-type-options", "access-control-allow-origin"};

}  // namespace

void PassedReply::Push(std::string_view bytes, std::string& body) {
  if (state_ == State::kHead) {
    const size_t before = head_.size();
    head_ += bytes;
    // A head may end across two pieces.
    const size_t from = before < 3 ? 0 : before - 3;
    const size_t end = head_.find("\r\n\r\n", from);
    if (end == std::string::npos) {
      if (head_.size() > kMostHead) state_ = State::kWrong;
      return;
    }
    const std::string rest = head_.substr(end + 4);
    head_.resize(end + 2);
    ReadHead(std::exchange(head_, {}));
    // "100 Continue" and its like come before the reply.
    if (state_ == State::kBody && status_ < 200) {
      *this = PassedReply();
    } else if (state_ == State::kBody && has_length_ && length_ == 0) {
      state_ = State::kOver;
    }
    Push(rest, body);
    return;
  }
  if (state_ != State::kBody || bytes.empty()) return;
  if (!is_chunked_) {
    if (has_length_) bytes = bytes.substr(0, length_ - got_);
    body += bytes;
    got_ += bytes.size();
    if (has_length_ && got_ == length_) state_ = State::kOver;
    return;
  }
  chunks_.Push(bytes, body);
  if (chunks_.is_over()) state_ = chunks_.is_wrong() ? State::kWrong : State::kOver;
}

void PassedReply::End() {
  if (state_ == State::kOver) return;
  const bool is_whole = state_ == State::kBody && !is_chunked_ && !has_length_;
  state_ = is_whole ? State::kOver : State::kWrong;
}

void PassedReply::ReadHead(std::string_view head) {
  state_ = State::kWrong;
  for (bool is_first = true; !head.empty(); is_first = false) {
    const size_t end = head.find("\r\n");
    if (end == std::string_view::npos) return;
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + 2);
    // A line's end within a line would be another line for the client.
    const bool is_line = line.find_first_of(std::string_view("\0\r\n", 3)) == line.npos;
    if (!is_line || !(is_first ? ReadStatus(line) : ReadHeader(line))) return;
  }
  if (status_ == 204 || status_ == 304) {
    has_length_ = true;
    length_ = 0;
  }
  if (status_ != 0 && !(has_length_ && is_chunked_)) state_ = State::kBody;
}

bool PassedReply::ReadStatus(std::string_view line) {
  constexpr std::string_view kVersion = "HTTP/1.1 ";
  if (!line.starts_with(kVersion) || line.size() < kVersion.size() + 3) return false;
  const auto status = ParseNumber<int>(line.substr(kVersion.size(), 3));
  status_ = status.value_or(0);
  return status_ >= 100 && status_ < 600;
}

bool PassedReply::ReadHeader(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string name(line.substr(0, colon));
  const std::string lower = LowerCase(name);
  const std::string value(WithoutBlanks(line.substr(colon + 1)));
  if (lower == "content-type") type_ = value;
  if (lower == "connection" && LowerCase(value) == "close") stays_ = false;
  if (lower == "transfer-encoding") is_chunked_ = LowerCase(value) == "chunked";
  if (lower == "content-length") {
    const auto length = ParseNumber<uint64_t>(value);
    if (!length) return false;
    has_length_ = true;
    length_ = *length;
  }
  if (!std::ranges::contains(kKept, lower)) headers_.emplace_back(name, value);
  return true;
}

}  // namespace moestro
