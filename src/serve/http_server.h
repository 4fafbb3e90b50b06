// SPDX-License-Identifier: MIT
// HTTP/1.1 on a socket: keeps limits, gives requests to handlers, writes replies whole or as a
// stream. A connection has a thread of its own, so that a client that sends or reads slowly holds
// up no other client. A connection stays for further requests. A client may send requests ahead;
// they are answered in their order. A reply after which the connection ends has the header for
// that: each of 400 and above, and those to HTTP/1.0. Each reply has an X-Request-Id, the client's
// own if the client sent one, and the X-Session-Id that the client sent.
//
// http_message.h has the limits of a head and what is refused as ambiguous; connection_ledger.h,
// how many connections there may be, and how slow. Beyond that a request is refused with 413 before
// its body is read, with 503 when the bodies of all requests take too much together (body_room.h),
// and with 405 for a method that no handler takes. A client that sends Expect gets the refusal
// before it sends the body.
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

#include "base/result.h"
#include "base/work_limit.h"
#include "serve/connection_ledger.h"
#include "serve/request_log.h"

namespace moestro {

struct HttpRequest {
  std::string method;
  std::string path;  // decoded, without the query
  std::string body;
  std::function<std::optional<std::string>(std::string_view name)> header;
  std::function<std::optional<std::string>(std::string_view name)> query;  // a field's value
  // Whether the client has closed the connection; a client that has only ended its own side has
  // not. The request's thread.
  std::function<bool()> is_gone;
  // The request's record; handlers complete it until the reply has been sent.
  RequestRecord* record = nullptr;
};

// The bytes of a streamed reply, on the way to the client.
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
  // Writes the body piece by piece, after the headers; empty: `body` is the whole body.
  std::function<void(HttpStream&)> stream = {};
};

struct HttpHandlers {
  // Called before the body is read. A reply ends the request, and the body is not read.
  std::function<std::optional<HttpReply>(const HttpRequest&)> admit;
  std::function<HttpReply(HttpRequest&)> answer;  // may take the body away
  // The body of a reply by which this server refuses a request. The record of a request without a
  // whole head has no path.
  std::function<std::string(const RequestRecord&, int status, std::string_view message)> refuse;
  // Headers of every reply to the request, also of a refusal by this server.
  std::function<std::vector<std::pair<std::string, std::string>>(const HttpRequest&)> headers =
      [](const HttpRequest&) { return std::vector<std::pair<std::string, std::string>>(); };
  // Called once the reply has been sent, or the client took no more of it.
  std::function<void(const RequestRecord&)> ended = {};
};

// Addresses of this form are sockets of this machine alone: "unix:/run/user/1000/moestro.socket".
inline constexpr std::string_view kUnixHost = "unix:";

struct HttpOptions {
  std::string host = "127.0.0.1";  // or a path after kUnixHost, whose port counts for nothing
  uint16_t port = 8080;            // 0: any free port
  size_t most_body = size_t{32} << 20;
  ConnectionLimits limits = {};
  std::vector<std::string> kept_paths = {};  // paths with places beside those of all other requests
  Clock clock = SteadySeconds;               // for the limits
};

class HttpServer {
 public:
  // Listens and takes connections. The socket of a path is this user's alone, and takes the place
  // of one that nobody listens on any more; it is removed at the end. kIo: the address is not
  // available; the message names it.
  static Result<std::unique_ptr<HttpServer>> Listen(HttpOptions options, HttpHandlers handlers);
  // Takes no more connections, and waits until the open ones have been answered.
  ~HttpServer();
  uint16_t port() const;  // 0: a path

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
