// SPDX-License-Identifier: MIT
// HTTP/1.1 on a socket: keeps limits, gives requests to handlers, writes replies whole or as a
// stream. A connection has a thread of its own, so that a client that sends or reads slowly holds
// up no other client. A connection stays for further requests. A client may send requests ahead;
// they are answered in their order. A reply after which the connection ends has the header for
// that. Each reply has an X-Request-Id, the client's own if the client sent one, and the
// X-Session-Id that the client sent.
//
// httplib (0.41 or newer; httplib.h stays in http_server.cc) takes requests apart. httplib refuses
// a target above 8 KiB (414), more than 100 lines of headers (431), a length beside an encoding or
// beside another length (400), and a chunked body above `most_body` (413). The rest is ours. Each
// part has a test that fails with httplib alone; the tests named here are HttpServerTest's:
// - http_head.h: 16 KiB of headers, also in one line (431);
// - client_socket.h: requests sent ahead, half-closed clients, refusals that reach the client;
// - connection_ledger.h, connections.h: how many connections, and how slow (408, 503, or closed);
// - body_room.h: all bodies together (503), BodiesThatTakeTooMuchTogetherAreRefused;
// - a long body is refused before it is read (413), RefusesALongBodyWithoutReadingIt;
// - a client that sends Expect first is refused first, AClientThatAsksFirstIsRefusedBeforeItSends,
//   and may write "100-Continue", AClientThatAsksFirstIsToldToSend;
// - a connection visibly ends when the beginning of the next request is in doubt,
//   AfterARefusalTheConnectionVisiblyEnds.
//
// Two hosts or origins, and a host in the target, are 400: a proxy before this server may have
// believed the other one.
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

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any free port
  size_t most_body = size_t{32} << 20;
  ConnectionLimits limits = {};
  bool keeps_alive = true;
  std::vector<std::string> kept_paths = {};  // paths with places beside those of all other requests
  Clock clock = SteadySeconds;               // for the limits
};

class HttpServer {
 public:
  // Listens and takes connections. kIo: the address is not available; the message names it.
  static Result<std::unique_ptr<HttpServer>> Listen(HttpOptions options, HttpHandlers handlers);
  // Takes no more connections, and waits until the open ones have been answered.
  ~HttpServer();
  uint16_t port() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
