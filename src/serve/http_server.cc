// SPDX-License-Identifier: MIT
#include "serve/http_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/input_file.h"
#include "base/result.h"
#include "base/text.h"
#include "serve/body_room.h"
#include "serve/connections.h"
#include "serve/http_message.h"

namespace moestro {
namespace {

constexpr int kBacklog = 512;
constexpr int kLookEveryMilliseconds = 100;  // between two searches for late connections
// The share of the time for idle connections that clients are promised, so that they close first.
constexpr double kPromised = 0.9;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
// A comment between the events of a reply, which clients pass over.
constexpr std::string_view kEmptyEvent = ":\n\n";
constexpr std::string_view kEmptyEventChunk = "3\r\n:\n\n\r\n";
constexpr std::string_view kEvents = "text/event-stream";
constexpr std::array<std::string_view, 5> kMethods = {"GET", "HEAD", "POST", "DELETE", "OPTIONS"};

// Removes the socket of a server that has died. What is no socket stays.
void RemoveDeadSocket(const sockaddr_un& address) {
  struct stat info = {};
  if (::lstat(address.sun_path, &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  const bool is_dead = ::connect(fd.get(), at, sizeof(address)) != 0 && errno == ECONNREFUSED;
  if (is_dead) ::unlink(address.sun_path);
}

// A socket that listens at a path; -1 with errno.
UniqueFd ListenAt(std::string_view path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    errno = path.empty() ? EINVAL : ENAMETOOLONG;
    return UniqueFd();
  }
  path.copy(address.sun_path, path.size());
  RemoveDeadSocket(address);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool listens =
      fd.get() >= 0 && ::fchmod(fd.get(), S_IRUSR | S_IWUSR) == 0 &&
      ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      ::listen(fd.get(), kBacklog) == 0;
  return listens ? std::move(fd) : UniqueFd();
}

// A socket that listens there; -1 with errno, which is 0 for a host that has no address.
UniqueFd ListenOn(const std::string& host, uint16_t port) {
  if (host.starts_with(kUnixHost)) {
    return ListenAt(std::string_view(host).substr(kUnixHost.size()));
  }
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  errno = 0;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    errno = 0;
    return UniqueFd();
  }
  UniqueFd listening;
  for (const addrinfo* at = found; at != nullptr && listening.get() < 0; at = at->ai_next) {
    UniqueFd fd(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int yes = 1;
    const int no = 0;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (at->ai_family == AF_INET6) {
      ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    }
    const bool listens = fd.get() >= 0 && ::bind(fd.get(), at->ai_addr, at->ai_addrlen) == 0 &&
                         ::listen(fd.get(), kBacklog) == 0;
    if (listens) listening = std::move(fd);
  }
  const int error = errno;
  ::freeaddrinfo(found);
  errno = error;
  return listening;
}

uint16_t PortOfSocket(const UniqueFd& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
  if (address.ss_family == AF_UNIX) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

// The body of a reply on its way, in chunks unless the client is too old for them.
class ReplyStream final : public HttpStream {
 public:
  ReplyStream(ClientSocket& client, bool has_chunks) : client_(client), has_chunks_(has_chunks) {}

  bool Write(std::string_view bytes) override {
    if (is_open_ && !bytes.empty()) {
      is_open_ = client_.Write(has_chunks_ ? ChunkOf(bytes) : std::string(bytes));
    }
    return is_open_;
  }
  bool is_open() const override { return is_open_ && !client_.IsGone(); }
  // Ends a whole body. False: the client has not got all of it.
  bool End() { return is_open() && (!has_chunks_ || client_.Write(kLastChunk)); }

 private:
  ClientSocket& client_;
  const bool has_chunks_;
  bool is_open_ = true;
};

struct ServerState {
  const HttpOptions options;
  const HttpHandlers handlers;
  Connections connections{options.limits, options.clock};
  BodyRoom bodies{options.most_body};
};

// A request and its reply.
class Exchange {
 public:
  // Both must outlive this.
  Exchange(ServerState& server, ClientSocket& client) : server_(server), client_(client) {
    request_.record = &record_;
    request_.header = [this](std::string_view name) { return head_.header(name); };
    request_.query = [this](std::string_view name) { return head_.query(name); };
    request_.is_gone = [this] { return client_.IsGone(); };
    client_.set_ignored({});
  }
  // Waits for a request and replies. False: the connection is to be closed.
  bool Run();

 private:
  using Refusal = std::optional<HttpReply>;  // nullopt: the request may go on

  HttpReply Refused(int status, std::string_view message) const;
  HttpReply Full(std::string_view message) const;
  HttpReply Cut() const;
  HttpReply Reply();
  bool ReadHead();
  Refusal Admit();
  Refusal ReadBody(BodyRoom::Share& room);
  Refusal ReadPart(ChunkReader& chunks, BodyRoom::Share& room);
  HttpHeaders HeadersOf(const HttpReply& reply);
  bool SendWhole(std::string head, std::string_view body);
  bool Send(const HttpReply& reply);

  ServerState& server_;
  ClientSocket& client_;
  RequestHead head_;
  HttpRequest request_;
  RequestRecord record_;
  bool has_read_body_ = false;
  bool stays_ = false;  // the connection, for another request
};

HttpReply Exchange::Refused(int status, std::string_view message) const {
  return {.status = status, .body = server_.handlers.refuse(record_, status, message)};
}

HttpReply Exchange::Full(std::string_view message) const {
  HttpReply reply = Refused(503, message);
  reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

// The rest of the request does not come.
HttpReply Exchange::Cut() const {
  if (server_.connections.is_finishing()) return Refused(503, "the server is going down");
  if (client_.is_late()) return Refused(408, "the request came too slowly");
  return Refused(400, "this is no HTTP request");
}

bool Exchange::Run() {
  if (client_.Peek().empty()) return false;
  const double began = server_.connections.now();
  client_.Tell(&ConnectionLedger::HeadBegins);
  const HttpReply reply =
      Caught([this] { return Reply(); },
             [this](std::string_view) {
               return Refused(500, "the server ran out of memory over this request");
             });
  // A stream that breaks off, for want of memory or a client, ends the connection.
  const bool is_sent = Caught([&] { return Send(reply); }, [](std::string_view) { return false; });
  record_.seconds = server_.connections.now() - began;
  if (server_.handlers.ended) server_.handlers.ended(record_);
  client_.Tell(&ConnectionLedger::Rests);
  return is_sent && stays_ && !server_.connections.is_finishing();
}

HttpReply Exchange::Reply() {
  const bool has_head = ReadHead();
  record_.path = head_.path();
  record_.id = RequestId(head_.header("X-Request-Id").value_or(""));
  request_.method = head_.method();
  request_.path = head_.path();
  if (!has_head) return Cut();
  if (Refusal refusal = Admit()) return *std::move(refusal);
  BodyRoom::Share room(server_.bodies);
  if (Refusal refusal = ReadBody(room)) return *std::move(refusal);
  client_.Tell(&ConnectionLedger::BodyEnds);
  HttpReply reply = server_.handlers.answer(request_);
  std::string().swap(request_.body);  // frees the memory before a stream, which takes long
  return reply;
}

bool Exchange::ReadHead() {
  while (!head_.is_over()) {
    const std::string_view bytes = client_.Peek();
    if (bytes.empty()) return false;
    client_.Take(head_.Push(bytes));
  }
  return true;
}

// Decides, at the end of the head, whether the request may go on.
Exchange::Refusal Exchange::Admit() {
  const HttpOptions& options = server_.options;
  // A request that names a model may wait for that model.
  const bool is_kept = std::ranges::contains(options.kept_paths, head_.path()) &&
                       !head_.has_body() && !head_.query("model");
  if (!client_.HeadEnds(is_kept)) {
    return Full("all connections for requests are taken; ask again");
  }
  if (head_.is_current()) client_.set_ignored(kContinue);
  if (head_.fault().status != 0) return Refused(head_.fault().status, head_.fault().message);
  if (!std::ranges::contains(kMethods, head_.method())) {
    HttpReply reply = Refused(405, "this server takes GET, HEAD, POST, DELETE and OPTIONS");
    reply.headers.emplace_back("Allow", "GET, HEAD, POST, DELETE, OPTIONS");
    return reply;
  }
  if (head_.length() > options.most_body) {
    return Refused(413, Format("a body of {} bytes is too long (at most {})", head_.length(),
                               options.most_body));
  }
  return server_.handlers.admit(request_);
}

// Leaves the body of another method unread, so that the connection ends (RFC 9110, 9.3.1).
Exchange::Refusal Exchange::ReadBody(BodyRoom::Share& room) {
  if (head_.method() != "POST" && head_.method() != "DELETE") return std::nullopt;
  const bool asks = HasIgnoringCase(head_.header("Expect").value_or(""), "100-continue");
  if (asks && head_.is_current() && head_.has_body() && !client_.WriteAtOnce(kContinue)) {
    return Cut();
  }
  ChunkReader chunks;
  request_.body.reserve(head_.length());  // Admit() has checked the length
  while (head_.is_chunked() ? !chunks.is_over() : request_.body.size() < head_.length()) {
    if (Refusal refusal = ReadPart(chunks, room)) return refusal;
  }
  has_read_body_ = true;
  return std::nullopt;
}

Exchange::Refusal Exchange::ReadPart(ChunkReader& chunks, BodyRoom::Share& room) {
  std::string& body = request_.body;
  std::string_view bytes = client_.Peek();
  if (bytes.empty()) return Cut();
  if (head_.is_chunked()) {
    bytes = bytes.substr(0, chunks.Push(bytes, body));
  } else {
    bytes = bytes.substr(0, head_.length() - body.size());
    body += bytes;
  }
  client_.Take(bytes.size());
  client_.Tell(&ConnectionLedger::BodyGrew, bytes.size());
  if (chunks.is_wrong()) return Refused(400, "the request's body does not come in chunks");
  if (body.size() > server_.options.most_body) return Refused(413, "the body is too long");
  if (!room.GrowTo(body.size())) return Full("other requests' bodies take all the room; ask again");
  return std::nullopt;
}

// The headers of a reply; decides whether the connection stays: no byte of the request is left that
// could be taken for the next one.
HttpHeaders Exchange::HeadersOf(const HttpReply& reply) {
  const std::string wish = head_.header("Connection").value_or("");
  stays_ = reply.status < 400 && head_.is_current() && !HasIgnoringCase(wish, "close") &&
           (has_read_body_ || !head_.has_body());
  HttpHeaders headers = reply.headers;
  if (reply.status != 204) {
    headers.emplace_back("Content-Type", reply.type);
    if (!reply.stream) {
      headers.emplace_back("Content-Length", std::to_string(reply.body.size()));
    } else if (head_.is_current()) {
      headers.emplace_back("Transfer-Encoding", "chunked");
    }
  }
  std::ranges::move(server_.handlers.headers(request_), std::back_inserter(headers));
  headers.emplace_back("X-Request-Id", record_.id);
  const std::string session = head_.header("X-Session-Id").value_or("");
  const bool is_one = head_.count("X-Session-Id") == 1;
  if (is_one && IsRepeatable(session)) headers.emplace_back("X-Session-Id", session);
  if (stays_) {
    const double promised = server_.options.limits.idle_seconds * kPromised;
    headers.emplace_back("Keep-Alive", Format("timeout={}", static_cast<int>(promised)));
  } else {
    headers.emplace_back("Connection", "close");
  }
  return headers;
}

// A small body goes with the head, in one packet; of a large one there should be no copy.
bool Exchange::SendWhole(std::string head, std::string_view body) {
  constexpr size_t kSmall = size_t{64} << 10;
  if (body.size() <= kSmall) return client_.Write(head += body);
  return client_.Write(head) && client_.Write(body);
}

// False: the client has not got all of it.
bool Exchange::Send(const HttpReply& reply) {
  record_.status = reply.status;
  std::string bytes = HttpReplyHead(reply.status, HeadersOf(reply));
  const bool has_body = head_.method() != "HEAD" && reply.status != 204;
  if (!reply.stream || !has_body) return SendWhole(std::move(bytes), has_body ? reply.body : "");
  const std::string_view empty_event = head_.is_current() ? kEmptyEventChunk : kEmptyEvent;
  client_.set_ignored(reply.type == kEvents ? empty_event : "");
  ReplyStream stream(client_, head_.is_current());
  if (!client_.Write(bytes)) return false;
  reply.stream(stream);
  return stream.End();
}

}  // namespace

struct HttpServer::Impl {
  ServerState parts;
  const UniqueFd listening;
  std::atomic<bool> is_ending = false;
  std::thread listener = {};

  void TakeConnections();
};

void HttpServer::Impl::TakeConnections() {
  while (!is_ending.load()) {
    pollfd poll_fd{.fd = listening.get(), .events = POLLIN, .revents = 0};
    ::poll(&poll_fd, 1, kLookEveryMilliseconds);
    parts.connections.EndLate();
    if (is_ending.load() || (poll_fd.revents & POLLIN) == 0) continue;
    UniqueFd socket(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.get() >= 0) {
      parts.connections.Begin(std::move(socket), [this](ClientSocket& client) {
        while (Exchange(parts, client).Run()) {
        }
      });
    } else if (errno != EAGAIN && errno != ECONNABORTED) {  // such as no descriptor that is free
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(HttpOptions options, HttpHandlers handlers) {
  UniqueFd socket = ListenOn(options.host, options.port);
  if (socket.get() < 0) {
    return Fail(Errc::kIo, "cannot listen on {} port {}: {}; choose another --port or --host",
                options.host, options.port,
                errno != 0 ? std::strerror(errno) : "the address is not this machine's");
  }
  auto impl = std::unique_ptr<Impl>(
      new Impl{.parts = {.options = std::move(options), .handlers = std::move(handlers)},
               .listening = std::move(socket)});
  impl->listener = std::thread([impl = impl.get()] { impl->TakeConnections(); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::~HttpServer() {
  impl_->is_ending = true;
  ::shutdown(impl_->listening.get(), SHUT_RDWR);  // wakes the listener
  impl_->listener.join();
  const std::string& host = impl_->parts.options.host;
  if (host.starts_with(kUnixHost)) ::unlink(host.c_str() + kUnixHost.size());
  impl_->parts.connections.Finish();
}

uint16_t HttpServer::port() const { return PortOfSocket(impl_->listening); }

}  // namespace moestro
