// SPDX-License-Identifier: MIT
#include "house/worker_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <iterator>

namespace moestro {

std::optional<WorkerLink> WorkerLink::Open(const std::string& path) {
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  if (path.size() >= sizeof(to.sun_path)) return std::nullopt;
  path.copy(to.sun_path, path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* const at = reinterpret_cast<const sockaddr*>(&to);
  if (fd.get() < 0 || ::connect(fd.get(), at, sizeof(to)) != 0) return std::nullopt;
  return WorkerLink(std::move(fd));
}

WorkerLink::Outcome WorkerLink::Await(short events, const IsGone& is_gone) const {
  constexpr int kLookEvery = 100;  // milliseconds
  for (;;) {
    pollfd wanted{.fd = socket_.get(), .events = events, .revents = 0};
    if (::poll(&wanted, 1, kLookEvery) > 0) return Outcome::kDone;
    if (is_gone()) return Outcome::kClientGone;
  }
}

WorkerLink::Outcome WorkerLink::Send(std::string_view bytes, const IsGone& is_gone) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
    if (n >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return Outcome::kWorkerGone;
    const Outcome waited = Await(POLLOUT, is_gone);
    if (waited != Outcome::kDone) return waited;
  }
  return Outcome::kDone;
}

WorkerLink::Outcome WorkerLink::Read(PassedReply& reply, std::string& body, const IsGone& is_gone) {
  std::array<char, size_t{64} << 10> bytes;
  for (;;) {
    const ssize_t n = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (n > 0) {
      reply.Push(std::string_view(bytes.data(), static_cast<size_t>(n)), body);
      return reply.is_wrong() ? Outcome::kWorkerGone : Outcome::kDone;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n == 0 || errno != EAGAIN) {
      reply.End();
      return reply.is_over() ? Outcome::kDone : Outcome::kWorkerGone;
    }
    const Outcome waited = Await(POLLIN, is_gone);
    if (waited != Outcome::kDone) return waited;
  }
}

bool WorkerLink::is_silent() const {
  char byte = 0;
  return ::recv(socket_.get(), &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
}

std::optional<WorkerLink> LinkPool::Take(const std::string& path) {
  {
    const std::lock_guard lock(mutex_);
    while (!waiting_.empty() && clock_() - waiting_.front().since > kMostSeconds) {
      waiting_.pop_front();
    }
    // The newest is the one whose process is the likeliest to be there still.
    for (auto at = waiting_.rbegin(); at != waiting_.rend(); ++at) {
      if (at->path != path) continue;
      WorkerLink link = std::move(at->link);
      waiting_.erase(std::next(at).base());
      if (link.is_silent()) return link;
      break;
    }
  }
  return WorkerLink::Open(path);
}

void LinkPool::Give(const std::string& path, WorkerLink link) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMostLinks) waiting_.pop_front();
  waiting_.push_back({.path = path, .link = std::move(link), .since = clock_()});
}

}  // namespace moestro
