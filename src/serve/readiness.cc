// SPDX-License-Identifier: MIT
#include "serve/readiness.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "base/terminal.h"
#include "base/work_limit.h"
#include "serve/http_server.h"

namespace moestro {
namespace {

struct SocketName {
  sockaddr_un address = {};
  socklen_t bytes = 0;
};

std::optional<SocketName> SocketNameOf(std::string_view text) {
  SocketName name;
  name.address.sun_family = AF_UNIX;
  const bool is_abstract = text.starts_with('@');
  // A path ends with a zero.
  const size_t most = sizeof(name.address.sun_path) - (is_abstract ? 0 : 1);
  if ((!is_abstract && !text.starts_with('/')) || text.size() > most) return std::nullopt;
  text.copy(name.address.sun_path, text.size());
  if (is_abstract) name.address.sun_path[0] = '\0';
  name.bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + (is_abstract ? 0 : 1));
  return name;
}

// True for errors after which no manager will ever listen; others, such as a full queue, may pass.
bool IsLasting(int why) {
  return why == ENOENT || why == ECONNREFUSED || why == EAFNOSUPPORT || why == EACCES;
}

// 0, or an errno.
int SendOnce(const SocketName& name, std::string_view text) {
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const timeval most{.tv_sec = 1, .tv_usec = 0};  // a manager that does not read holds up nothing
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
  ssize_t n = -1;
  do {
    n = sendto(fd, text.data(), text.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&name.address), name.bytes);
  } while (n < 0 && errno == EINTR);
  const int why = n < 0 ? errno : 0;
  close(fd);
  return why;
}

}  // namespace

std::string ServiceNotice::AddressOfEnvironment() {
  const char* address = std::getenv("NOTIFY_SOCKET");
  return address == nullptr ? "" : address;
}

void ServiceNotice::Send(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (address_.empty()) return;
  const std::optional<SocketName> name = SocketNameOf(address_);
  const int why = name ? SendOnce(*name, text) : EAFNOSUPPORT;
  if (why == 0) return;
  if (!was_said_) {
    LogWarning("cannot tell the service manager at NOTIFY_SOCKET={}: {}; going on without it",
               Printable(address_), std::strerror(why));
    was_said_ = true;
  }
  if (IsLasting(why)) address_.clear();
}

namespace {

// A socket that gives up at a moment.
class AskingSocket {
 public:
  AskingSocket(int fd, double end) : fd_(fd), end_(end) {}
  AskingSocket(const AskingSocket&) = delete;
  AskingSocket& operator=(const AskingSocket&) = delete;
  ~AskingSocket() {
    if (fd_ >= 0) close(fd_);
  }

  // Each: 0, or an errno.
  int Connect(const sockaddr* to, socklen_t to_bytes) const {
    if (fd_ < 0) return errno;
    if (connect(fd_, to, to_bytes) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    if (const int why = WaitFor(POLLOUT); why != 0) return why;
    int why = 0;
    socklen_t bytes = sizeof(why);
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &why, &bytes);
    return why;
  }
  int Send(std::string_view text) const {
    while (!text.empty()) {
      if (const int why = WaitFor(POLLOUT); why != 0) return why;
      const ssize_t n = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN && errno != EINTR) return errno;
      if (n > 0) text.remove_prefix(static_cast<size_t>(n));
    }
    return 0;
  }
  // Receives until the first line is complete or the server closes.
  int ReceiveLine(std::string& line) const {
    constexpr size_t kLongest = 1024;
    while (!line.contains('\n') && line.size() < kLongest) {
      if (const int why = WaitFor(POLLIN); why != 0) return why;
      char bytes[256];
      const ssize_t n = recv(fd_, bytes, sizeof(bytes), 0);
      if (n < 0 && errno != EAGAIN && errno != EINTR) return errno;
      if (n == 0) break;
      if (n > 0) line.append(bytes, static_cast<size_t>(n));
    }
    line.resize(std::min(line.find('\n'), line.size()));
    return 0;
  }

 private:
  int WaitFor(short events) const {
    pollfd wanted{.fd = fd_, .events = events, .revents = 0};
    for (;;) {
      const double left = end_ - SteadySeconds();
      if (left <= 0.0) return ETIMEDOUT;
      const int ready = poll(&wanted, 1, static_cast<int>(std::min(left, 1e6) * 1000.0) + 1);
      if (ready > 0) return 0;
      if (ready < 0 && errno != EINTR) return errno;
    }
  }

  const int fd_;
  const double end_;
};

std::string AskedHost(const std::string& host) {
  if (host == "0.0.0.0") return "127.0.0.1";
  return host == "::" ? "::1" : host;
}

int Ask(const addrinfo& to, const std::string& request, double end, std::string& line) {
  const AskingSocket asking(
      socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to.ai_protocol), end);
  int why = asking.Connect(to.ai_addr, to.ai_addrlen);
  if (why == 0) why = asking.Send(request);
  return why == 0 ? asking.ReceiveLine(line) : why;
}

int AskAt(std::string_view path, const std::string& request, double end, std::string& line) {
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(to.sun_path)) return ENAMETOOLONG;
  path.copy(to.sun_path, path.size());
  const AskingSocket asking(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), end);
  int why = asking.Connect(reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  if (why == 0) why = asking.Send(request);
  return why == 0 ? asking.ReceiveLine(line) : why;
}

}  // namespace

Status CheckHealth(const std::string& host, uint16_t port, double seconds) {
  const double end = SteadySeconds() + seconds;
  const bool is_path = host.starts_with(kUnixHost);
  const std::string asked = AskedHost(host);
  const std::string where =
      is_path ? Printable(host, 200) : Format("{} port {}", Printable(asked), port);
  // By a name that every server takes.
  const std::string request =
      Format("GET /health HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n\r\n", port);
  int why = ECONNREFUSED;
  std::string line;
  if (is_path) {
    why = AskAt(std::string_view(host).substr(kUnixHost.size()), request, end, line);
  } else {
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int failed = getaddrinfo(asked.c_str(), Format("{}", port).c_str(), &hints, &found);
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
    if (failed != 0) return Fail(Errc::kIo, "{}: {}", where, gai_strerror(failed));
    for (const addrinfo* to = list.get(); to != nullptr && why != 0; to = to->ai_next) {
      line.clear();
      why = Ask(*to, request, end, line);
    }
  }
  if (why != 0) return Fail(Errc::kIo, "no server answers at {}: {}", where, std::strerror(why));
  constexpr std::string_view kReady = "HTTP/1.1 200";
  if (line.starts_with(kReady)) return {};
  if (!line.starts_with("HTTP/1."))
    return Fail(Errc::kIo, "what answers at {} is no server of this kind", where);
  return Fail(Errc::kInvalidRequest, "the server at {} is not ready: it loads, or ends", where);
}

}  // namespace moestro
