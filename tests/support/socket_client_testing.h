// SPDX-License-Identifier: MIT
// An HTTP client that speaks bytes, so that tests can send what no library would.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace moestro {

class SocketClient {
 public:
  explicit SocketClient(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = Loopback(port);
    is_open_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~SocketClient() { close(fd_); }
  SocketClient(const SocketClient&) = delete;
  SocketClient& operator=(const SocketClient&) = delete;

  bool is_open() const { return is_open_; }
  bool Send(std::string_view bytes) const {
    while (is_open_ && !bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return is_open_;
  }
  // Sends no more, but reads.
  void EndSending() const { shutdown(fd_, SHUT_WR); }
  // Until `end` has come or the server closes.
  std::string ReceiveUntil(std::string_view end) const {
    std::string got;
    char byte = 0;
    while (!got.ends_with(end) && recv(fd_, &byte, 1, 0) == 1) got += byte;
    return got;
  }
  std::string ReceiveAll() const { return ReceiveUntil("\x01 never sent"); }

  // A port that no server listens on, for a server that is about to start.
  static uint16_t FreePort() {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = Loopback(0);
    socklen_t bytes = sizeof(address);
    const bool is_bound = bind(fd, reinterpret_cast<sockaddr*>(&address), bytes) == 0 &&
                          getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0;
    close(fd);
    return is_bound ? ntohs(address.sin_port) : 0;
  }

 private:
  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  int fd_;
  bool is_open_ = false;
};

// Requests after whose replies the connection stays.
inline std::string KeptPost(std::string_view path, std::string_view body,
                            std::string_view headers = "") {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + std::string(headers) +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

inline std::string KeptGet(std::string_view path, std::string_view headers = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + std::string(headers) +
         "\r\n";
}

// Requests after whose replies the server closes.
inline std::string Post(std::string_view path, std::string_view body,
                        std::string_view headers = "") {
  return KeptPost(path, body, "Connection: close\r\n" + std::string(headers));
}

inline std::string Get(std::string_view path, std::string_view headers = "") {
  return KeptGet(path, "Connection: close\r\n" + std::string(headers));
}

}  // namespace moestro
