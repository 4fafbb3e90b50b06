// SPDX-License-Identifier: MIT
// A request and its reply, as far as httplib does not handle them.
//
// Thread rule: an Exchange belongs to the connection's thread; Exchanges: any thread.
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

// httplib gives a handler the request and no connection. So a handler finds the exchange by a
// number that the request has in place of the client's port.
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
  // REQUIRES: the exchange has been added and not removed.
  Exchange& Of(int number) const {
    const std::lock_guard lock(mutex_);
    return *all_.at(number);
  }

 private:
  mutable std::mutex mutex_;
  std::map<int, Exchange*> all_;
};

}  // namespace moestro
