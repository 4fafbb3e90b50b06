// SPDX-License-Identifier: MIT
// HTTP requests, several at once on one thread. libcurl stays in web_transfers.cc, and finds
// proxies in the environment. This code follows no redirects and retries nothing.
//
// Thread rule: one thread.
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
#include "hub/web_request.h"

namespace moestro {

struct WebOptions {
  double connect_seconds = 30.0;  // limit for a connection
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
  // Moves bytes for up to so many seconds, or until an event. Returns the transfers that have
  // ended, each once.
  std::vector<WebEnd> Wait(double seconds);
  // Ends a transfer without a WebEnd. Does nothing for a transfer that is over.
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
