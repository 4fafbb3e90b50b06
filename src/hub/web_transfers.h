// SPDX-License-Identifier: MIT
// Requests under way, several at once on one thread. libcurl stays in web_transfers.cc; proxies are
// found in the environment by it. Nothing is followed, retried or decided here.
//
// One thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/web_head.h"

namespace moestro {

struct WebOptions {
  double connect_seconds = 30.0;  // that a connection may take
  double silent_seconds = 30.0;   // of fewer than 1,000 bytes a second, which end a transfer
  std::string agent = "moestro";
};

struct WebRequest {
  std::string address;
  bool is_head = false;  // requests the headers alone
  std::optional<ByteRange> range = {};
  std::string if_range = {};  // an ETag as a server wrote it; empty: none
  std::string token = {};     // empty: none
};

enum class WebFault : uint8_t {
  kNone,
  kStopped,    // a receiver ended the transfer
  kNoServer,   // no such host, no connection, no route: perhaps no network at all
  kNotSecure,  // a certificate that cannot be verified
  kCut,        // the connection broke, went silent or sent bytes that are not HTTP
};

struct WebEnd {
  uint64_t id = 0;
  WebFault fault = WebFault::kNone;
  std::string why = {};                    // libcurl's words
  std::optional<double> retry_after = {};  // seconds, if the server said so
  WebHead head = {};                       // status 0: none came
};

class WebTransfers {
 public:
  // Receives a reply. Each function is called while Wait() runs and returns whether to go on.
  struct Receiver {
    std::function<bool(const WebHead& head)> on_head;  // once, before the body; may be empty
    std::function<bool(std::span<const std::byte> bytes)> on_body;
  };

  // kIo: libcurl cannot begin.
  static Result<std::unique_ptr<WebTransfers>> Create(WebOptions options);
  ~WebTransfers();
  WebTransfers(const WebTransfers&) = delete;
  WebTransfers& operator=(const WebTransfers&) = delete;

  // Begins a request and gives its number. kIo: not an address.
  Result<uint64_t> Start(const WebRequest& request, Receiver receiver);
  // Moves bytes for up to so many seconds, or until something has happened; the transfers that have
  // ended, each once.
  std::vector<WebEnd> Wait(double seconds);
  // The transfer is over without an end to report. Nothing if it is over already.
  void Cancel(uint64_t id);

 private:
  struct Transfer;
  explicit WebTransfers(WebOptions options);

  WebOptions options_;
  void* multi_ = nullptr;  // libcurl's
  std::map<uint64_t, std::unique_ptr<Transfer>> active_;
  uint64_t next_id_ = 1;
};

}  // namespace moestro
