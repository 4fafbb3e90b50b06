// SPDX-License-Identifier: MIT
// A reply of a worker as bytes: its head, and where its body ends. Workers are servers of this
// program, so little of HTTP is needed; what is beyond that is a fault. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "serve/http_message.h"

namespace moestro {

class PassedReply {
 public:
  static constexpr size_t kMostHead = 64 * 1024;

  // Takes the next bytes. Bytes of the body are appended to `body`, without the marks of chunks.
  void Push(std::string_view bytes, std::string& body);
  // The worker sends no more.
  void End();

  bool has_head() const { return state_ > State::kHead; }
  bool is_over() const { return state_ == State::kOver; }
  // The bytes are no reply, or end before the reply does.
  bool is_wrong() const { return state_ == State::kWrong; }

  // From has_head() on.
  int status() const { return status_; }
  const std::string& type() const { return type_; }  // the body's
  // The headers that go on to the client: none of those that belong to the worker's connection or
  // that the house's own server sets.
  const HttpHeaders& headers() const { return headers_; }
  // The process keeps the connection for another request.
  bool stays() const { return stays_; }
  // The body's length is known, and so it is no stream.
  bool has_length() const { return has_length_; }
  uint64_t length() const { return length_; }

 private:
  enum class State : uint8_t { kHead, kBody, kOver, kWrong };

  void ReadHead(std::string_view head);
  bool ReadStatus(std::string_view line);
  bool ReadHeader(std::string_view line);

  State state_ = State::kHead;
  std::string head_;  // so far
  int status_ = 0;
  std::string type_;
  HttpHeaders headers_;
  bool stays_ = true;
  bool has_length_ = false;
  bool is_chunked_ = false;
  uint64_t length_ = 0;
  uint64_t got_ = 0;  // bytes of the body
  ChunkReader chunks_;
};

}  // namespace moestro
