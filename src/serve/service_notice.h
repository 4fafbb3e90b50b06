// SPDX-License-Identifier: MIT
// Sends this process's state to the service manager that started it: the datagrams of sd_notify(3),
// which are text. Without a manager nothing is sent.
//
// Thread rule: Send() from any thread.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace moestro {

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

}  // namespace moestro
