// SPDX-License-Identifier: MIT
// HTTP/1.1 on a socket: takes requests apart, keeps limits, writes replies whole or as a stream.
// What is answered is the handlers' business. A connection has a thread of its own, so that one
// that sends or reads slowly holds up no other client. It stays for further requests, which may be
// sent ahead and are answered in their order; a reply after which it does not says so. Each reply
// has an X-Request-Id, the client's own if it sent one. httplib.h stays in http_server.cc.
//
// Limits: a body of `most_body` bytes (413, the rest is not read), as many for all bodies of a time
// together but for the first 64 KiB of each (503, likewise), 16 KiB and 100 lines of headers
// (431), 8 KiB in a target (414); how many connections and how slow they may be, see
// connection_ledger.h (408, 503, or closed). Two hosts or origins, and a host in the target, are
// 400: a proxy before this server may have believed the other one.
//
// Thread rule: handlers are called from many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "serve/connection_ledger.h"
#include "serve/request_record.h"

namespace moestro {

struct HttpRequest {
  std::string method;
  std::string path;  // decoded, without the query
  std::string body;
  std::function<std::optional<std::string>(std::string_view name)> header;
  std::function<std::optional<std::string>(std::string_view name)> query;  // a field's value
  // The client has closed its connection. Its own side may be at its end. Its thread only.
  std::function<bool()> is_gone;
  // What is written down about it; handlers add what they know until the reply has been sent.
  RequestRecord* record = nullptr;
};

// Where a streamed reply goes.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  // Sends at once. False: the client is gone.
  virtual bool Write(std::string_view bytes) = 0;
  virtual bool is_open() const = 0;
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Writes the body as it comes, after the headers; empty: `body` is all.
  std::function<void(HttpStream&)> stream = {};
};

struct HttpHandlers {
  // Before the body is read; a reply ends the request there.
  std::function<std::optional<HttpReply>(const HttpRequest&)> admit;
  std::function<HttpReply(HttpRequest&)> answer;  // may take the body away
  // The body of what this server refuses itself. A request without a whole head has no path.
  std::function<std::string(const RequestRecord&, int status, std::string_view message)> refuse;
  // Headers of every reply to the request, also of what this server refuses itself.
  std::function<std::vector<std::pair<std::string, std::string>>(const HttpRequest&)> headers =
      [](const HttpRequest&) { return std::vector<std::pair<std::string, std::string>>(); };
  // The reply has been sent, or as much of it as the client took.
  std::function<void(const RequestRecord&)> ended = {};
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any free one
  size_t most_body = size_t{32} << 20;
  ConnectionLimits limits = {};
  bool keeps_alive = true;
  std::vector<std::string> kept_paths = {};  // that get in when all other places are taken
  Clock clock = SteadySeconds;               // for the limits
};

class HttpServer {
 public:
  // Listens; connections are taken from then on. kIo when the address cannot be had (names it).
  static Result<std::unique_ptr<HttpServer>> Listen(HttpOptions options, HttpHandlers handlers);
  // Takes no more connections and waits until those that are open have been answered.
  ~HttpServer();
  uint16_t port() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
