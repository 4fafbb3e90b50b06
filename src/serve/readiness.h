// SPDX-License-Identifier: MIT
// Readiness of a server: reports to the service manager, and checks from outside.
//
// Thread rule: Send() from any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace moestro {

// Sends this process's state to the service manager that started it: the datagrams of sd_notify(3),
// which are text. Without a manager nothing is sent.

class ServiceNotice {
 public:
  // `address` is NOTIFY_SOCKET's value: a path, or a name behind '@' that is no file. Empty: no
  // manager.
  explicit ServiceNotice(std::string address) : address_(std::move(address)) {}
  static std::string AddressOfEnvironment();

  // Sends "READY=1\nSTATUS=..."; text from elsewhere in it must be Printable(), since each line is
  // an order. Waits for a second at most. A notice that cannot be sent is lost, with one warning in
  // the log: a server works without being watched. After an error that cannot pass, no further
  // notice is sent.
  void Send(std::string_view text);

 private:
  std::mutex mutex_;
  std::string address_;
  bool was_said_ = false;
};

// Checks whether a running server is ready, as containers and monitors do.

// Sends GET /health to an address that a server listens on, or to the path after kUnixHost; for an
// address that stands for all, to loopback. kIo: no answer within `seconds`, or the answer is not
// HTTP. kInvalidRequest: the answer is that the server is not ready.
Status CheckHealth(const std::string& host, uint16_t port, double seconds);

}  // namespace moestro
