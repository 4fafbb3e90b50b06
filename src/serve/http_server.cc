// SPDX-License-Identifier: MIT
#include "serve/http_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <thread>

#include "serve/body_room.h"
#include "serve/client_socket.h"
#include "serve/exchange.h"
#include "serve/status_messages.h"

namespace moestro {
namespace {

// A header that no client can send, since a name has no blank: the headers have too many bytes.
constexpr const char* kTooLong = "too long";
constexpr size_t kMostHeaderLines = 100;  // httplib's own limit, for which it replies 400
constexpr int kBacklog = 512;
constexpr int kLookEveryMicroseconds = 100000;  // between two searches for late connections
// The share of the time for idle connections that clients are promised, so that they close first.
constexpr double kPromised = 0.9;
constexpr const char* kIdHeader = "X-Request-Id";
constexpr const char* kSessionHeader = "X-Session-Id";
constexpr const char* kContinue = "100-continue";
constexpr std::string_view kChunked = "chunked";
constexpr std::string_view kEvents = "text/event-stream";

// httplib's view of Connections.
class ConnectionThreads final : public httplib::TaskQueue {
 public:
  explicit ConnectionThreads(Connections& connections) : connections_(connections) {}

  bool enqueue(std::function<void()> work) override {
    connections_.EndLate();
    return connections_.Begin(std::move(work));
  }
  void on_idle() override { connections_.EndLate(); }
  void shutdown() override { connections_.Finish(); }

 private:
  Connections& connections_;
};

// A client's socket as httplib reads and writes it.
class ClientStream final : public httplib::Stream {
 public:
  explicit ClientStream(ClientSocket& client) : client_(client) {}

  bool is_readable() const override { return client_.has_unread(); }
  bool wait_readable() const override { return true; }  // read() waits
  bool wait_writable() const override { return !client_.IsGone(); }
  ssize_t read(char* to, size_t size) override { return client_.Read(to, size); }
  ssize_t write(const char* from, size_t size) override { return client_.Write({from, size}); }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return client_.socket(); }
  time_t duration() const override { return 0; }

 private:
  ClientSocket& client_;
};

// Serves the requests of a connection one after another. Requests sent ahead wait in ClientSocket.
class SocketServer final : public httplib::Server {
 public:
  SocketServer(Connections& connections, Exchanges& exchanges,
               std::function<void(const RequestRecord&)> ended)
      : connections_(connections), exchanges_(exchanges), ended_(std::move(ended)) {}

 private:
  bool process_and_close_socket(socket_t socket) override {
    ClientSocket client(socket, connections_);
    ClientStream stream(client);
    bool stays = true;
    while (stays && client.NextRequest()) {
      Exchange exchange{.client = client, .began = connections_.now()};
      exchanges_.Add(exchange);
      bool is_closed = false;
      const bool is_written =
          process_request(stream, "", Exchanges::NumberOf(exchange), "", 0, false, is_closed,
                          [&](httplib::Request& request) { SetUp(client, request); });
      exchanges_.Remove(exchange);
      exchange.record.seconds = connections_.now() - exchange.began;
      if (client.is_answered()) ended_(exchange.record);
      stays = is_written && !is_closed && exchange.stays;
      if (!client.is_answered() && connections_.must_go(client.id())) client.Write(kTooSlow);
    }
    return true;
  }

  // Adds the headers that went past httplib, once httplib has read the head.
  static void SetUp(ClientSocket& client, httplib::Request& request) {
    for (const auto& [name, value] : client.head().put_aside()) {
      request.headers.emplace(name, value);
    }
    if (client.head().is_too_long()) request.headers.emplace(kTooLong, "");
    if (request.has_header("Transfer-Encoding")) client.ExpectChunks();
    // httplib compares with the lower case alone.
    const auto expected = request.headers.find("Expect");
    if (expected == request.headers.end()) return;
    if (HasIgnoringCase(expected->second, kContinue)) expected->second = kContinue;
  }

  Connections& connections_;
  Exchanges& exchanges_;
  const std::function<void(const RequestRecord&)> ended_;
};

class SinkStream final : public HttpStream {
 public:
  explicit SinkStream(httplib::DataSink& sink) : sink_(sink) {}

  bool Write(std::string_view bytes) override {
    if (is_open_ && !bytes.empty()) is_open_ = sink_.write(bytes.data(), bytes.size());
    return is_open_;
  }
  bool is_open() const override { return is_open_ && sink_.is_writable(); }

 private:
  httplib::DataSink& sink_;
  bool is_open_ = true;
};

HttpRequest Translate(const httplib::Request& from, Exchange& exchange) {
  HttpRequest request;
  request.method = from.method;
  request.path = from.path;
  request.header = [&from](std::string_view name) -> std::optional<std::string> {
    const std::string key(name);
    if (!from.has_header(key)) return std::nullopt;
    return from.get_header_value(key);
  };
  request.query = [&from](std::string_view name) -> std::optional<std::string> {
    const std::string key(name);
    if (!from.has_param(key)) return std::nullopt;
    return from.get_param_value(key);
  };
  request.record = &exchange.record;
  request.is_gone = [&exchange] { return exchange.client.IsGone(); };
  return request;
}

void Translate(HttpReply from, httplib::Response& reply) {
  reply.status = from.status;
  for (const auto& [name, value] : from.headers) reply.set_header(name, value);
  if (!from.stream) {
    reply.set_content(std::move(from.body), from.type);
    return;
  }
  reply.set_chunked_content_provider(
      from.type, [stream = std::move(from.stream)](size_t, httplib::DataSink& sink) {
        SinkStream out(sink);
        try {
          stream(out);
        } catch (const std::exception&) {
          return false;  // no memory: the connection breaks off, the server goes on
        }
        if (!out.is_open()) return false;
        sink.done();
        return true;
      });
}

}  // namespace

struct HttpServer::Impl {
  HttpOptions options;
  HttpHandlers handlers;
  Connections connections;
  Exchanges exchanges;
  SocketServer server;
  int port = 0;
  socket_t listening = -1;  // the newest that httplib made
  std::thread listener;
  BodyRoom bodies;

  explicit Impl(HttpOptions chosen)
      : options(std::move(chosen)),
        connections(options.limits, options.clock),
        server(connections, exchanges,
               [this](const RequestRecord& r) {
                 if (handlers.ended) handlers.ended(r);
               }),
        bodies(options.most_body) {}
  HttpReply Refused(const Exchange& exchange, int status, std::string_view message) const {
    return {.status = status, .body = handlers.refuse(exchange.record, status, message)};
  }
  HttpReply Full(const Exchange& exchange, std::string_view message) const {
    HttpReply reply = Refused(exchange, 503, message);
    reply.headers.emplace_back("Retry-After", "1");
    return reply;
  }
  std::optional<HttpReply> Admit(const httplib::Request& request, Exchange& exchange);
  bool IsKept(const httplib::Request& request) const;
  bool Stays(const httplib::Request& request, int status, const Exchange& exchange) const;
  void Read(const httplib::Request& request, httplib::Response& reply,
            const httplib::ContentReader& content);
  void Answer(const httplib::Request& from, httplib::Response& reply, std::string body);
  void Explain(const httplib::Request& request, httplib::Response& reply) const;
  void EndHead(const httplib::Request& request, httplib::Response& reply) const;
  void SetUp();
};

// Whether the request has a body: only an announced one counts.
bool AnnouncesBody(const httplib::Request& request) {
  if (request.has_header("Transfer-Encoding")) return true;
  if (request.has_header("Content-Length")) {
    return request.get_header_value("Content-Length") != "0";
  }
  return request.method != "GET" && request.method != "HEAD" && request.method != "OPTIONS";
}

// True for a plain body and for chunks, the only encoding that this server decodes; a request of an
// older version has no encoding.
bool IsChunkedOrPlain(const httplib::Request& request) {
  const size_t n = request.get_header_value_count("Transfer-Encoding");
  const std::string encoding = request.get_header_value("Transfer-Encoding");
  const bool is_chunked = encoding.size() == kChunked.size() && HasIgnoringCase(encoding, kChunked);
  return n == 0 || (n == 1 && is_chunked && request.version == "HTTP/1.1");
}

// True if a header that determines the end of the body has gone past httplib.
bool HidesBody(const HttpHead& head) {
  return std::ranges::any_of(head.put_aside(), [](const auto& header) {
    return HasIgnoringCase(header.first, "Content-Length") ||
           HasIgnoringCase(header.first, "Transfer-Encoding");
  });
}

bool HttpServer::Impl::IsKept(const httplib::Request& request) const {
  return std::ranges::contains(options.kept_paths, request.path) && !AnnouncesBody(request);
}

// Decides, at the end of the head, whether the request may go on. httplib calls this twice if the
// client sends Expect before its body.
std::optional<HttpReply> HttpServer::Impl::Admit(const httplib::Request& request,
                                                 Exchange& exchange) {
  if (std::exchange(exchange.is_admitted, true)) return std::nullopt;
  exchange.record.path = request.path;
  exchange.record.id = RequestId(request.get_header_value(kIdHeader));
  if (!connections.HeadEnds(exchange.client.id(), IsKept(request))) {
    return Full(exchange, "all connections for requests are taken; ask again");
  }
  if (request.version == "HTTP/1.1") exchange.client.set_ignored(kIgnored);
  if (request.has_header(kTooLong)) {
    return Refused(exchange, 431, "the request has more than 16 KiB of headers");
  }
  if (request.headers.size() > kMostHeaderLines) {  // also counts headers that went past httplib
    return Refused(exchange, 431, "the request has more than 100 headers");
  }
  if (exchange.client.head().is_malformed()) {
    return Refused(exchange, 400, "a line of the request's head is no header");
  }
  if (!IsChunkedOrPlain(request)) {
    return Refused(exchange, 501, "a body comes with its length, or in chunks");
  }
  if (HidesBody(exchange.client.head())) {
    return Refused(exchange, 400, "the request does not say plainly where its body ends");
  }
  if (request.get_header_value_count("Host") > 1 || request.get_header_value_count("Origin") > 1 ||
      (!request.path.starts_with('/') && request.method != "OPTIONS")) {
    return Refused(exchange, 400, "a request has one Host, one Origin, and a path as its target");
  }
  const auto length = request.get_header_value_u64("Content-Length");
  if (length > options.most_body) {
    return Refused(
        exchange, 413,
        Format("a body of {} bytes is too long (at most {})", length, options.most_body));
  }
  return handlers.admit(Translate(request, exchange));
}

// True if another request may follow on the connection: the client allows it, and no byte of this
// request is left that could be taken for the next one.
bool HttpServer::Impl::Stays(const httplib::Request& request, int status,
                             const Exchange& exchange) const {
  if (!options.keeps_alive || status >= 400 || request.version != "HTTP/1.1") return false;
  if (HasIgnoringCase(request.get_header_value("Connection"), "close")) return false;
  return exchange.has_read_body || !AnnouncesBody(request);
}

void HttpServer::Impl::Answer(const httplib::Request& from, httplib::Response& reply,
                              std::string body) {
  Exchange& exchange = exchanges.Of(from.remote_port);
  connections.BodyEnds(exchange.client.id());
  HttpRequest request = Translate(from, exchange);
  request.body = std::move(body);
  Translate(handlers.answer(request), reply);
}

void HttpServer::Impl::Read(const httplib::Request& request, httplib::Response& reply,
                            const httplib::ContentReader& content) {
  Exchange& exchange = exchanges.Of(request.remote_port);
  std::string body;
  body.reserve(request.get_header_value_u64("Content-Length"));  // Admit() has checked the length
  BodyRoom::Share room(bodies);
  bool has_room = true;
  exchange.has_read_body = content([&](const char* data, size_t size) {
    connections.BodyGrew(exchange.client.id(), size);
    has_room = room.GrowTo(body.size() + size);
    if (has_room) body.append(data, size);
    return has_room;
  });
  if (exchange.has_read_body) {
    Answer(request, reply, std::move(body));
  } else if (!has_room) {
    Translate(Full(exchange, "other requests' bodies take all the room; ask again"), reply);
  }
}

// Writes the message of a refusal by this server or by httplib.
void HttpServer::Impl::Explain(const httplib::Request& request, httplib::Response& reply) const {
  if (!reply.body.empty()) return;  // the handlers' own
  if (reply.status == 400 && request.headers.size() >= kMostHeaderLines) reply.status = 431;
  const Exchange& exchange = exchanges.Of(request.remote_port);
  if (reply.status == 400) {  // or the connection was cut before the request was whole
    reply.status = connections.StatusOfCut(exchange.client.id());
  }
  const std::string_view message =
      StatusMessage(reply.status, httplib::status_message(reply.status));
  reply.set_content(handlers.refuse(exchange.record, reply.status, message), "application/json");
}

// The last moment before the reply's head is sent.
void HttpServer::Impl::EndHead(const httplib::Request& request, httplib::Response& reply) const {
  Exchange& exchange = exchanges.Of(request.remote_port);
  for (const auto& [name, value] : handlers.headers(Translate(request, exchange))) {
    reply.set_header(name, value);
  }
  exchange.stays = Stays(request, reply.status, exchange);
  exchange.record.status = reply.status;
  if (exchange.record.id.empty()) exchange.record.id = RequestId("");  // without a head
  reply.set_header(kIdHeader, exchange.record.id);
  const std::string session = request.get_header_value(kSessionHeader);
  const bool is_one = request.get_header_value_count(kSessionHeader) == 1;
  if (is_one && IsRepeatable(session)) reply.set_header(kSessionHeader, session);
  reply.headers.erase("Keep-Alive");
  reply.headers.erase("Connection");
  if (exchange.stays) {
    const double promised = options.limits.idle_seconds * kPromised;
    reply.set_header("Keep-Alive", Format("timeout={}", static_cast<int>(promised)));
  } else {
    reply.set_header("Connection", "close");
  }
  const bool has_events = reply.get_header_value("Content-Type") == kEvents;
  exchange.client.set_ignored(has_events ? kIgnoredEvent : "");
}

void HttpServer::Impl::SetUp() {
  server.new_task_queue = [this] { return new ConnectionThreads(connections); };
  server.set_payload_max_length(options.most_body);
  // Connections ends all waiting.
  server.set_read_timeout(0);
  server.set_write_timeout(0);
  server.set_idle_interval(0, kLookEveryMicroseconds);
  server.set_tcp_nodelay(true);
  // httplib's own options would let two servers share a port.
  server.set_socket_options([this](socket_t socket) {
    httplib::set_socket_opt(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    listening = socket;
  });
  server.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& reply) {
    std::optional<HttpReply> refused = Admit(request, exchanges.Of(request.remote_port));
    if (!refused) return httplib::Server::HandlerResponse::Unhandled;
    Translate(*std::move(refused), reply);
    return httplib::Server::HandlerResponse::Handled;
  });
  server.set_expect_100_continue_handler(
      [this](const httplib::Request& request, httplib::Response& reply) {
        std::optional<HttpReply> refused = Admit(request, exchanges.Of(request.remote_port));
        if (!refused) return 100;
        Translate(*std::move(refused), reply);
        return reply.status;
      });
  const auto without_body = [this](const httplib::Request& request, httplib::Response& reply) {
    Answer(request, reply, "");
  };
  server.Get("/.*", without_body);
  server.Delete("/.*", without_body);
  server.Options("/.*", without_body);
  server.Post("/.*",
              [this](const httplib::Request& request, httplib::Response& reply,
                     const httplib::ContentReader& content) { Read(request, reply, content); });
  server.set_error_handler([this](const httplib::Request& request, httplib::Response& reply) {
    Explain(request, reply);
  });
  server.set_post_routing_handler([this](const httplib::Request& request,
                                         httplib::Response& reply) { EndHead(request, reply); });
  server.set_exception_handler(
      [this](const httplib::Request& request, httplib::Response& reply, const std::exception_ptr&) {
        Translate(Refused(exchanges.Of(request.remote_port), 500,
                          "the server ran out of memory over this request"),
                  reply);
      });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(HttpOptions options, HttpHandlers handlers) {
  auto impl = std::make_unique<Impl>(std::move(options));
  impl->handlers = std::move(handlers);
  impl->SetUp();
  const HttpOptions& o = impl->options;
  errno = 0;
  if (o.port == 0) {
    impl->port = impl->server.bind_to_any_port(o.host);
  } else {
    impl->port = impl->server.bind_to_port(o.host, o.port) ? o.port : -1;
  }
  if (impl->port < 0) {
    return Fail(Errc::kIo, "cannot listen on {} port {}: {}; choose another --port or --host",
                o.host, o.port,
                errno != 0 ? std::strerror(errno) : "the address is not this machine's");
  }
  // httplib lets five connections wait, so that of a hundred at once some would wait for seconds.
  ::listen(impl->listening, kBacklog);
  impl->listener = std::thread([server = &impl->server] { server->listen_after_bind(); });
  impl->server.wait_until_ready();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::~HttpServer() {
  impl_->server.stop();
  impl_->listener.join();
}

uint16_t HttpServer::port() const { return static_cast<uint16_t>(impl_->port); }

}  // namespace moestro
