// SPDX-License-Identifier: MIT
#include "serve/http_server.h"

#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>

#include "serve/body_room.h"
#include "serve/http_head.h"

namespace moestro {
namespace {

// A header that no client can send, since a name has no blank: there are too many bytes of them.
constexpr const char* kTooLong = "too long";
constexpr size_t kMostHeaderLines = 100;  // httplib's own limit
constexpr int kBacklog = 512;
// How long the server waits at the end for connections that are still open.
constexpr std::chrono::seconds kGrace{1};

// Our end of a connection that a client made to `port`.
bool IsConnection(int fd, uint16_t port) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_bytes = sizeof(here);
  socklen_t there_bytes = sizeof(there);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_bytes) != 0) return false;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_bytes) != 0) return false;
  // The port stands in the same place for IPv4 and IPv6.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&here)->sin_port) == port;
}

// Ends connections whose clients neither send nor read: httplib does not say which sockets it has.
void CutConnections(uint16_t port) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (IsConnection(fd, port)) ::shutdown(fd, SHUT_RDWR);
  }
}

// A thread for each connection.
class ConnectionThreads final : public httplib::TaskQueue {
 public:
  // `port`: ours, known when the first connection comes.
  ConnectionThreads(size_t most, const int& port) : most_(most), port_(port) {}

  bool enqueue(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    if (live_ >= most_) return false;
    try {
      std::thread([this, work = std::move(work)] {
        work();
        const std::lock_guard end(mutex_);
        --live_;
        ended_.notify_all();
      }).detach();
    } catch (const std::system_error&) {
      return false;  // no thread to be had: the connection is closed
    }
    ++live_;
    return true;
  }

  void shutdown() override {
    std::unique_lock lock(mutex_);
    const auto is_over = [this] { return live_ == 0; };
    if (ended_.wait_for(lock, kGrace, is_over)) return;
    CutConnections(static_cast<uint16_t>(port_));
    ended_.wait(lock, is_over);
  }

 private:
  const size_t most_;
  const int& port_;
  size_t live_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;
};

// A connection as httplib reads and writes it, but for long lines of headers.
class ClientStream final : public httplib::Stream {
 public:
  // Closes the socket in the end.
  ClientStream(socket_t socket, int patience) : socket_(socket), patience_(patience) {}
  ~ClientStream() override {
    Discard();
    ::shutdown(socket_, SHUT_RDWR);
    ::close(socket_);
  }
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;

  // What httplib has not seen, once it has read the head.
  void AddTo(httplib::Request& request) const {
    for (const auto& [name, value] : head_.put_aside()) request.headers.emplace(name, value);
    if (head_.is_too_long()) request.headers.emplace(kTooLong, "");
  }

  bool is_readable() const override { return !pending_.empty(); }
  bool wait_readable() const override { return is_readable() || Waits(POLLIN); }
  bool wait_writable() const override { return Waits(POLLOUT) && IsAlive(); }
  ssize_t read(char* to, size_t size) override {
    // httplib would wait for the rest of a body that was refused.
    if (is_answered_) return -1;
    while (pending_.empty() && !head_.is_too_long()) {
      std::array<char, 4096> bytes{};
      const bool is_direct = head_.is_over() && size >= bytes.size();
      const ssize_t n =
          Waits(POLLIN) ? Receive(is_direct ? to : bytes.data(), is_direct ? size : bytes.size())
                        : -1;
      if (n <= 0 || is_direct) return n;
      pending_ = head_.Push({bytes.data(), static_cast<size_t>(n)});
      taken_ = 0;
    }
    const size_t n = pending_.copy(to, size, taken_);
    taken_ += n;
    if (taken_ == pending_.size()) pending_.clear();
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* from, size_t size) override {
    if (!wait_writable()) return -1;
    is_answered_ = is_answered_ || !std::string_view(from, size).starts_with("HTTP/1.1 100");
    ssize_t n = 0;
    do {
      n = ::send(socket_, from, size, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n;
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }
  time_t duration() const override { return 0; }

 private:
  bool Waits(short events) const {
    pollfd poll_fd{.fd = socket_, .events = events, .revents = 0};
    int ready = 0;
    do {
      ready = ::poll(&poll_fd, 1, patience_ * 1000);
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
  }
  ssize_t Receive(char* to, size_t size, int flags = 0) const {
    ssize_t n = 0;
    do {
      n = ::recv(socket_, to, size, flags);
    } while (n < 0 && errno == EINTR);
    return n;
  }
  // A client that is still sending what was refused may lose the reply: a socket that is closed
  // with bytes unread breaks the connection off (RFC 9112, 9.6).
  void Discard() const {
    constexpr int kSlices = 20;
    constexpr int kSliceMs = 50;
    std::array<char, 65536> bytes{};
    if (Receive(bytes.data(), 1, MSG_PEEK | MSG_DONTWAIT) <= 0) return;
    ::shutdown(socket_, SHUT_WR);
    for (int i = 0; i < kSlices; ++i) {
      pollfd poll_fd{.fd = socket_, .events = POLLIN, .revents = 0};
      if (::poll(&poll_fd, 1, kSliceMs) <= 0) continue;
      ssize_t n = 1;
      while (n > 0) n = Receive(bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return;
    }
  }
  bool IsAlive() const {
    char byte = 0;
    const ssize_t n = Receive(&byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
  }

  socket_t socket_;
  int patience_;  // seconds
  HttpHead head_;
  bool is_answered_ = false;  // the reply has begun
  std::string pending_;       // read and not yet asked for from `taken_` on
  size_t taken_ = 0;
};

// One request on each connection.
class OneRequestServer final : public httplib::Server {
 private:
  bool process_and_close_socket(socket_t socket) override {
    ClientStream stream(socket, static_cast<int>(read_timeout_sec_));
    bool is_closed = false;
    return process_request(stream, "", 0, "", 0, true, is_closed,
                           [&](httplib::Request& request) { stream.AddTo(request); });
  }
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

HttpRequest Translate(const httplib::Request& from) {
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
  request.is_gone = [&from] { return from.is_connection_closed(); };
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
  OneRequestServer server;
  int port = 0;
  socket_t listening = -1;  // the newest that httplib made
  std::thread listener;
  BodyRoom bodies;

  explicit Impl(HttpOptions chosen) : options(std::move(chosen)), bodies(options.most_body) {}
  HttpReply Refused(int status, std::string_view message) const {
    return {.status = status, .body = handlers.refuse(status, message)};
  }
  std::optional<HttpReply> Admit(const httplib::Request& request) const {
    if (request.has_header(kTooLong)) {
      return Refused(431, "the request has more than 16 KiB of headers");
    }
    const auto length = request.get_header_value_u64("Content-Length");
    if (length > options.most_body) {
      HttpReply reply = Refused(
          413, Format("a body of {} bytes is too long (at most {})", length, options.most_body));
      reply.headers.emplace_back("Connection", "close");
      return reply;
    }
    return handlers.admit(Translate(request));
  }
  void Answer(const httplib::Request& from, httplib::Response& reply, std::string body) const {
    HttpRequest request = Translate(from);
    request.body = std::move(body);
    Translate(handlers.answer(request), reply);
  }
  void SetUp();
};

void HttpServer::Impl::SetUp() {
  server.new_task_queue = [this] { return new ConnectionThreads(options.most_connections, port); };
  server.set_payload_max_length(options.most_body);
  server.set_read_timeout(options.patience);
  server.set_write_timeout(options.patience);
  server.set_tcp_nodelay(true);
  // httplib's own options would let two servers share a port.
  server.set_socket_options([this](socket_t socket) {
    httplib::set_socket_opt(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    listening = socket;
  });
  httplib::Headers headers;
  for (const auto& [name, value] : options.headers) headers.emplace(name, value);
  server.set_default_headers(headers);
  server.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& reply) {
    std::optional<HttpReply> refused = Admit(request);
    if (!refused) return httplib::Server::HandlerResponse::Unhandled;
    Translate(*std::move(refused), reply);
    return httplib::Server::HandlerResponse::Handled;
  });
  const auto without_body = [this](const httplib::Request& request, httplib::Response& reply) {
    Answer(request, reply, "");
  };
  server.Get("/.*", without_body);
  server.Delete("/.*", without_body);
  server.Options("/.*", without_body);
  server.Post("/.*", [this](const httplib::Request& request, httplib::Response& reply,
                            const httplib::ContentReader& content) {
    std::string body;
    body.reserve(request.get_header_value_u64("Content-Length"));  // Admit() has judged it
    BodyRoom::Share room(bodies);
    bool has_room = true;
    const bool is_read = content([&](const char* data, size_t size) {
      has_room = room.GrowTo(body.size() + size);
      if (has_room) body.append(data, size);
      return has_room && body.size() <= options.most_body;
    });
    if (is_read) {
      Answer(request, reply, std::move(body));
    } else if (!has_room) {
      HttpReply refused = Refused(503, "other requests' bodies take all the room; ask again");
      refused.headers.emplace_back("Retry-After", "1");
      Translate(std::move(refused), reply);
    }
  });
  server.set_error_handler([this](const httplib::Request& request, httplib::Response& reply) {
    if (!reply.body.empty()) return;  // the handlers' own
    const bool many = request.headers.size() >= kMostHeaderLines;
    if (reply.status == 400 && many) reply.status = 431;
    std::string_view message = httplib::status_message(reply.status);
    if (reply.status == 413) message = "the body is too long";
    if (reply.status == 400) message = "this is no HTTP request";
    if (reply.status == 431) message = "the request has too many headers";
    if (reply.status == 404) message = "there is nothing of that name";
    reply.set_content(handlers.refuse(reply.status, message), "application/json");
  });
  server.set_exception_handler(
      [this](const httplib::Request&, httplib::Response& reply, const std::exception_ptr&) {
        Translate(Refused(500, "the server ran out of memory over this request"), reply);
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
