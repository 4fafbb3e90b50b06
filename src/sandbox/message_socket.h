// SPDX-License-Identifier: MIT
// Whole messages between a process and its forked child. Each message is a length, then so many
// bytes, at most 2 MiB.
//
// Thread rule: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace moestro {

// Numbers and texts within a message.
void AppendNumber(std::string& bytes, uint32_t number);
// REQUIRES: bytes holds four more.
uint32_t TakeNumber(std::string_view& bytes);

class MessageSocket {
 public:
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;  // nullopt: none

  // Both ends. kIo.
  static Result<std::pair<MessageSocket, MessageSocket>> MakePair();
  explicit MessageSocket(int fd = -1) : fd_(fd) {}
  MessageSocket(MessageSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  MessageSocket& operator=(MessageSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~MessageSocket() { Close(); }

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void Close();

  // Waits until a message can be read or the other side is gone; false: neither, in time.
  bool Await(std::chrono::milliseconds time) const;
  // The other side is gone; messages that it left may still be read.
  bool is_abandoned() const;
  // False, nullopt: the other side is gone or does not answer in time, or the message is too long.
  bool Write(std::string_view message, Deadline end);
  std::optional<std::string> Read(Deadline end);
  // Gives the other side a copy of a third socket.
  bool Send(const MessageSocket& other);
  // The received socket; not open if none came.
  MessageSocket Receive();

 private:
  int fd_;
};

}  // namespace moestro
