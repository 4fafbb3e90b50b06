// SPDX-License-Identifier: MIT
#include "serve/client_socket.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace moestro {
namespace {

// Seconds after which a client whose machine is gone is missed.
constexpr int kAliveSeconds = 30;
constexpr int kAliveEvery = 10;
constexpr int kAliveTries = 3;

void Set(int socket, int level, int name, int value) {
  ::setsockopt(socket, level, name, &value, sizeof(value));
}

}  // namespace

ClientSocket::ClientSocket(int socket, Connections& connections)
    : socket_(socket), connections_(connections), id_(connections.Open(socket)) {
  Set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(socket, SOL_TCP, TCP_KEEPIDLE, kAliveEvery);
  Set(socket, SOL_TCP, TCP_KEEPINTVL, kAliveEvery);
  Set(socket, SOL_TCP, TCP_KEEPCNT, kAliveTries);
  Set(socket, SOL_TCP, TCP_USER_TIMEOUT, kAliveSeconds * 1000);
}

ClientSocket::~ClientSocket() {
  Discard();
  connections_.Close(id_);
}

bool ClientSocket::NextRequest() {
  if (is_answered_ && !connections_.Rests(id_)) return false;
  is_answered_ = false;
  has_asked_ = false;
  ignored_ = {};
  head_ = {};
  chunks_.reset();
  const std::string ahead = pending_.substr(taken_);
  taken_ = 0;
  pending_ = head_.Push(ahead);
  if (ahead.empty() && !FillPending()) return false;
  connections_.HeadBegins(id_);
  return true;
}

// Waits for bytes and takes them; false: none come any more.
bool ClientSocket::FillPending() {
  std::array<char, 4096> bytes{};
  const ssize_t n = Receive(bytes.data(), bytes.size(), 0);
  if (n <= 0) return false;
  pending_ = head_.Push({bytes.data(), static_cast<size_t>(n)});
  taken_ = 0;
  return true;
}

ssize_t ClientSocket::Read(char* to, size_t size) {
  const ssize_t n = ReadAny(to, size);
  const bool is_right = n <= 0 || !chunks_ || chunks_->Push({to, static_cast<size_t>(n)});
  return is_right ? n : -1;
}

ssize_t ClientSocket::ReadAny(char* to, size_t size) {
  // httplib would wait for the rest of a body that was refused.
  if (is_answered_) return -1;
  while (!has_unread()) {
    if (head_.is_too_long()) return 0;
    constexpr size_t kWorthIt = 4096;
    if (head_.is_over() && size >= kWorthIt) return Receive(to, size, 0);
    if (!FillPending()) return -1;
  }
  const size_t n = pending_.copy(to, size, taken_);
  taken_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t ClientSocket::Write(std::string_view bytes) {
  // The interim reply "Continue" with its empty line does not begin the reply.
  const bool is_interim = !is_answered_ && (bytes.starts_with("HTTP/1.1 100") || bytes == "\r\n");
  is_answered_ = !is_interim;
  bool has_waited = false;
  while (true) {
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (has_waited && n > 0) connections_.ReplyGoesOn(id_, static_cast<size_t>(n));
    if (n >= 0) return n;
    if (errno == EINTR) continue;
    if (is_interim || (errno != EAGAIN && errno != EWOULDBLOCK)) return -1;
    if (!has_waited) connections_.ReplyWaits(id_);
    has_waited = true;
    pollfd poll_fd{.fd = socket_, .events = POLLOUT, .revents = 0};
    ::poll(&poll_fd, 1, -1);  // or until the socket is shut down
  }
}

bool ClientSocket::IsGone() {
  pollfd poll_fd{.fd = socket_, .events = POLLRDHUP, .revents = 0};
  if (::poll(&poll_fd, 1, 0) <= 0) return false;
  if ((poll_fd.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0 || ignored_.empty()) return true;
  if (!has_asked_) ::send(socket_, ignored_.data(), ignored_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  has_asked_ = true;
  return false;
}

ssize_t ClientSocket::Receive(char* to, size_t size, int flags) const {
  ssize_t n = 0;
  do {
    n = ::recv(socket_, to, size, flags);
  } while (n < 0 && errno == EINTR);
  // Bytes received after the connection's deadline are discarded.
  if (n > 0 && flags == 0 && connections_.must_go(id_)) return -1;
  return n;
}

// Takes the rest of a refused request until the client stops or the connection's time is over: a
// socket closed with bytes unread breaks the connection off, and a client that still sends may lose
// the reply (RFC 9112, 9.6).
void ClientSocket::Discard() {
  std::array<char, 65536> bytes{};
  if (Receive(bytes.data(), 1, MSG_PEEK | MSG_DONTWAIT) <= 0) return;
  ::shutdown(socket_, SHUT_WR);
  connections_.Lingers(id_);
  while (Receive(bytes.data(), bytes.size(), 0) > 0) {
  }
}

}  // namespace moestro
