// SPDX-License-Identifier: MIT
// ggml's own server of another machine's memory, as Debian packages it, on this machine's loopback
// (scripts/setup.sh device installs it).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace moestro::testing {

class RpcServer {
 public:
  // The program's file; empty: it is not installed.
  static std::string Program();

  // Listens on the port `at`, or a free one, when this returns.
  explicit RpcServer(uint16_t at = 0);
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;
  ~RpcServer() { Kill(); }

  uint16_t port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void Kill();  // as kill -9
  void Stop() const;
  void GoOn() const;
  // Bytes of memory that it has had at most.
  uint64_t Peak() const;

 private:
  pid_t process_ = -1;
  uint16_t port_ = 0;
};

}  // namespace moestro::testing
