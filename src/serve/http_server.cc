// SPDX-License-Identifier: MIT
#include "serve/http_server.h"

#include <httplib.h>

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

namespace moestro {
namespace {

constexpr size_t kMostHeaderBytes = 16 * 1024;
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

size_t HeaderBytes(const httplib::Request& request) {
  size_t bytes = 0;
  for (const auto& [name, value] : request.headers) bytes += name.size() + value.size() + 4;
  return bytes;
}

}  // namespace

struct HttpServer::Impl {
  HttpOptions options;
  HttpHandlers handlers;
  httplib::Server server;
  int port = 0;
  socket_t listening = -1;  // the newest that httplib made
  std::thread listener;

  HttpReply Refused(int status, std::string_view message) const {
    return {.status = status, .body = handlers.refuse(status, message)};
  }
  std::optional<HttpReply> Admit(const httplib::Request& request) const {
    if (HeaderBytes(request) > kMostHeaderBytes) {
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
  server.set_keep_alive_max_count(1);
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
    const bool is_read = content([&](const char* data, size_t size) {
      body.append(data, size);
      return body.size() <= options.most_body;
    });
    if (is_read) Answer(request, reply, std::move(body));
  });
  server.set_error_handler([this](const httplib::Request& request, httplib::Response& reply) {
    if (!reply.body.empty()) return;  // the handlers' own
    const bool many = request.headers.size() >= kMostHeaderLines;
    if (reply.status == 400 && many) reply.status = 431;
    std::string_view message = httplib::status_message(reply.status);
    if (reply.status == 413) message = "the body is too long";
    if (reply.status == 400) message = "this is no HTTP request, or a line of it is over 8 KiB";
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
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
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
