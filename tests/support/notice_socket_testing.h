// SPDX-License-Identifier: MIT
// The service manager's end of NOTIFY_SOCKET.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <string>

namespace moestro {

class NoticeSocket {
 public:
  explicit NoticeSocket(const std::string& address) : fd_(socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    address.copy(name.sun_path, sizeof(name.sun_path) - 1);
    if (name.sun_path[0] == '@') name.sun_path[0] = '\0';
    const size_t end = name.sun_path[0] == '\0' ? 0 : 1;
    const auto bytes =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size() + end);
    is_open_ = bind(fd_, reinterpret_cast<const sockaddr*>(&name), bytes) == 0;
  }
  ~NoticeSocket() { close(fd_); }
  NoticeSocket(const NoticeSocket&) = delete;
  NoticeSocket& operator=(const NoticeSocket&) = delete;

  bool is_open() const { return is_open_; }
  // The next datagram; empty: none came within half a minute.
  std::string Receive() const {
    pollfd wanted{.fd = fd_, .events = POLLIN, .revents = 0};
    return poll(&wanted, 1, 30'000) <= 0 ? "" : ReceiveNow();
  }
  // Empty: none is there.
  std::string ReceiveNow() const {
    std::array<char, 4096> bytes{};
    const ssize_t n = recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    return n <= 0 ? "" : std::string(bytes.data(), static_cast<size_t>(n));
  }
  // As if a manager had not read for long.
  void Fill() const {
    sockaddr_un name{};
    socklen_t bytes = sizeof(name);
    if (getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return;
    const int sender = socket(AF_UNIX, SOCK_DGRAM, 0);
    while (sendto(sender, "old", 3, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&name), bytes) >
           0) {
    }
    close(sender);
  }

 private:
  int fd_;
  bool is_open_ = false;
};

}  // namespace moestro
