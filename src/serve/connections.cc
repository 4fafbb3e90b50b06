// SPDX-License-Identifier: MIT
#include "serve/connections.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>

#include "base/result.h"

namespace moestro {
namespace {

// Time at the end for replies that are under way, and waiting time for places and threads.
constexpr std::chrono::seconds kGrace{1};
// Seconds after which a client whose machine is gone is missed.
constexpr int kAliveSeconds = 30;
constexpr int kAliveEvery = 10;
constexpr int kAliveTries = 3;

void SetOption(int socket, int level, int name, int value) {
  ::setsockopt(socket, level, name, &value, sizeof(value));
}

ssize_t Receive(int socket, char* to, size_t size, int flags) {
  ssize_t n = 0;
  do {
    n = ::recv(socket, to, size, flags);
  } while (n < 0 && errno == EINTR);
  return n;
}

ssize_t SendSome(int socket, std::string_view bytes) {
  ssize_t n = 0;
  do {
    n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  return n;
}

}  // namespace

// The thread that takes connections goes on without the one for which memory is short.
void Connections::Begin(UniqueFd socket, std::function<void(ClientSocket&)> serve) {
  Caught([&] { BeginThread(std::move(socket), std::move(serve)); }, [](std::string_view) {});
}

void Connections::BeginThread(UniqueFd socket, std::function<void(ClientSocket&)> serve) {
  std::unique_lock lock(mutex_);
  std::optional<ConnectionLedger::Arrival> arrival;
  // Waits for a place: while all places for requests are taken, connections beyond them (refusals,
  // kept paths) end soon.
  const bool has_place = ended_.wait_for(lock, kGrace, [&] {
    if (threads_ < most_threads_) arrival = ledger_.Arrive(clock_());
    return arrival.has_value();
  });
  if (!has_place) return;
  if (arrival->leaves) End(*arrival->leaves);
  const Id id = arrival->id;
  try {
    sockets_[id] = socket.get();
    auto run = [this, id, serve = std::move(serve)](UniqueFd client) {
      // A connection that cannot get memory ends; the others go on.
      Caught(
          [&] {
            ClientSocket connection(std::move(client), id, *this);
            serve(connection);
          },
          [](std::string_view) {});
      const std::lock_guard end(mutex_);
      --threads_;
      ended_.notify_all();
    };
    std::thread(std::move(run), std::move(socket)).detach();
    ++threads_;
  } catch (const std::exception&) {  // no thread, or no memory for one
    sockets_.erase(id);
    ledger_.Gone(id);
  }
}

void Connections::Finish() {
  std::unique_lock lock(mutex_);
  is_finishing_ = true;
  for (const Id id : ledger_.waited_for()) ShutDown(id, SHUT_RDWR);
  const auto is_over = [this] { return threads_ == 0; };
  if (ended_.wait_for(lock, kGrace, is_over)) return;
  for (const auto& [id, socket] : sockets_) ShutDown(id, SHUT_RDWR);
  ended_.wait(lock, is_over);
}

// Ends late connections. If memory is too short for the list, the next call ends them.
void Connections::EndLate() {
  const std::lock_guard lock(mutex_);
  Caught(
      [this] {
        for (const Id id : ledger_.TakeLate(clock_())) End(id);
      },
      [](std::string_view) {});
}

// Shuts down only reading if the client is still sending: its thread then sends the refusal and
// closes the socket.
void Connections::End(Id id) const { ShutDown(id, ledger_.is_sending(id) ? SHUT_RD : SHUT_RDWR); }

void Connections::ShutDown(Id id, int how) const {
  const auto at = sockets_.find(id);
  if (at != sockets_.end()) ::shutdown(at->second, how);
}

void Connections::Forget(Id id) {
  const std::lock_guard lock(mutex_);
  ShutDown(id, SHUT_RDWR);
  sockets_.erase(id);
  ledger_.Gone(id);
}

ClientSocket::ClientSocket(UniqueFd socket, Connections::Id id, Connections& connections)
    : socket_(std::move(socket)), id_(id), connections_(connections) {
  SetOption(socket_.get(), SOL_TCP, TCP_NODELAY, 1);
  SetOption(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(socket_.get(), SOL_TCP, TCP_KEEPIDLE, kAliveEvery);
  SetOption(socket_.get(), SOL_TCP, TCP_KEEPINTVL, kAliveEvery);
  SetOption(socket_.get(), SOL_TCP, TCP_KEEPCNT, kAliveTries);
  SetOption(socket_.get(), SOL_TCP, TCP_USER_TIMEOUT, kAliveSeconds * 1000);
}

ClientSocket::~ClientSocket() {
  Discard();
  connections_.Forget(id_);
}

bool ClientSocket::HeadEnds(bool is_kept) {
  const std::lock_guard lock(connections_.mutex_);
  const auto verdict = connections_.ledger_.HeadEnds(id_, is_kept, connections_.clock_());
  if (verdict.leaves) connections_.End(*verdict.leaves);
  return verdict.passes;
}

bool ClientSocket::is_late() const {
  const std::lock_guard lock(connections_.mutex_);
  return connections_.ledger_.must_go(id_);
}

std::string_view ClientSocket::Peek() {
  if (begin_ == end_) {
    const ssize_t n = Receive(socket_.get(), bytes_.data(), bytes_.size(), 0);
    // Bytes received after the connection's deadline are discarded.
    if (n <= 0 || is_late()) return {};
    begin_ = 0;
    end_ = static_cast<size_t>(n);
  }
  return std::string_view(bytes_.data(), end_).substr(begin_);
}

bool ClientSocket::Write(std::string_view bytes) {
  for (bool waits = false;;) {
    const ssize_t n = SendSome(socket_.get(), bytes);
    if (n < 0 && errno != EAGAIN) return false;
    if (n > 0 && waits) Tell(&ConnectionLedger::ReplyGoesOn, static_cast<size_t>(n));
    if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
    if (bytes.empty()) return true;
    if (is_late()) return false;  // no deadline would end a wait now
    if (n > 0 || !waits) Tell(&ConnectionLedger::ReplyWaits);
    waits = true;
    pollfd poll_fd{.fd = socket_.get(), .events = POLLOUT, .revents = 0};
    ::poll(&poll_fd, 1, -1);  // or until the socket is shut down
  }
}

bool ClientSocket::WriteAtOnce(std::string_view bytes) {
  if (std::cmp_equal(SendSome(socket_.get(), bytes), bytes.size())) return true;
  ::shutdown(socket_.get(), SHUT_RDWR);
  return false;
}

bool ClientSocket::IsGone() {
  pollfd poll_fd{.fd = socket_.get(), .events = POLLRDHUP | POLLOUT, .revents = 0};
  ::poll(&poll_fd, 1, 0);
  const auto has = [&](int event) { return (poll_fd.revents & event) != 0; };
  if (has(POLLERR | POLLHUP | POLLNVAL)) return true;
  if (!has(POLLRDHUP)) return false;
  if (ignored_.empty()) return true;
  if (has_asked_ || !has(POLLOUT)) return false;
  has_asked_ = true;
  return !WriteAtOnce(ignored_);
}

// Takes the rest of a refused request until the client stops or the connection's time is over: a
// socket closed with bytes unread breaks the connection off, and a client that still sends may lose
// the reply (RFC 9112, 9.6).
void ClientSocket::Discard() {
  if (Receive(socket_.get(), bytes_.data(), 1, MSG_PEEK | MSG_DONTWAIT) <= 0) return;
  ::shutdown(socket_.get(), SHUT_WR);
  Tell(&ConnectionLedger::Lingers);
  while (Receive(socket_.get(), bytes_.data(), bytes_.size(), 0) > 0) {
  }
}

}  // namespace moestro
