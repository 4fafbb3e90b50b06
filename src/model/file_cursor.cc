// SPDX-License-Identifier: MIT
#include "model/file_cursor.h"

#include <algorithm>
#include <cstring>

namespace moestro {

Result<FileCursor> FileCursor::Open(const std::string& path) {
  TRY(std::unique_ptr<ByteSource> bytes, OpenFileBytes(path));
  return FileCursor(std::move(bytes));
}

Result<std::string> FileCursor::ReadString(uint64_t limit, std::string_view what) {
  TRY(const uint64_t length, Read<uint64_t>(what));
  TRY_STATUS(CheckRemaining(length, what));
  if (length > limit) {
    return Fail(Errc::kInvalidFile, "{}: {} at byte {} is {} bytes long, at most {} make sense",
                path(), what, position_, length, limit);
  }
  std::string text(length, '\0');
  TRY_STATUS(ReadBytes(text.data(), length, what));
  return text;
}

Status FileCursor::ReadBytes(void* to, uint64_t bytes, std::string_view what) {
  TRY_STATUS(CheckRemaining(bytes, what));
  char* out = static_cast<char*>(to);
  while (bytes > 0) {
    if (position_ < window_begin_ || position_ >= window_begin_ + window_.size()) {
      window_ = {};
      TRY(window_, bytes_->BytesAt(position_));
      window_begin_ = position_;
    }
    const uint64_t from = position_ - window_begin_;
    const uint64_t count = std::min<uint64_t>(bytes, window_.size() - from);
    std::memcpy(out, window_.data() + from, count);
    out += count;
    bytes -= count;
    position_ += count;
  }
  return {};
}

Status FileCursor::Skip(uint64_t bytes, std::string_view what) {
  TRY_STATUS(CheckRemaining(bytes, what));
  position_ += bytes;
  return {};
}

Status FileCursor::CheckRemaining(uint64_t bytes, std::string_view what) const {
  if (bytes <= file_bytes() - position_) return {};
  return Fail(Errc::kInvalidFile,
              "{}: {} at byte {} needs {} more bytes, the file ends at {}; it is damaged or "
              "incomplete, fetch it again",
              path(), what, position_, bytes, file_bytes());
}

}  // namespace moestro
