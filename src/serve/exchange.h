// SPDX-License-Identifier: MIT
// A request on its way to its reply, as far as the HTTP library does not know it.
//
// Thread rule: an Exchange is its connection's thread's; Exchanges any thread.
#pragma once

#include <limits>
#include <map>
#include <mutex>

#include "serve/client_socket.h"
#include "serve/request_record.h"

namespace moestro {

struct Exchange {
  ClientSocket& client;
  bool is_admitted = false;
  bool has_read_body = false;
  bool stays = false;  // the connection, for another request
  double began = 0.0;
  RequestRecord record = {};
};

// The library gives its handlers a request and no connection, so an exchange is found by a number
// that travels along as the client's port.
class Exchanges {
 public:
  static int NumberOf(const Exchange& exchange) {
    return static_cast<int>(exchange.client.id() % std::numeric_limits<int>::max());
  }
  void Add(Exchange& exchange) {
    const std::lock_guard lock(mutex_);
    all_[NumberOf(exchange)] = &exchange;
  }
  void Remove(const Exchange& exchange) {
    const std::lock_guard lock(mutex_);
    all_.erase(NumberOf(exchange));
  }
  // REQUIRES: it has been added and not removed.
  Exchange& Of(int number) const {
    const std::lock_guard lock(mutex_);
    return *all_.at(number);
  }

 private:
  mutable std::mutex mutex_;
  std::map<int, Exchange*> all_;
};

}  // namespace moestro
