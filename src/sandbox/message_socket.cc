// SPDX-License-Identifier: MIT
#include "sandbox/message_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace moestro {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint32_t kLongestMessage = 2U << 20;

// Waits until the other side is ready; false: the time is up.
bool AwaitEvent(int fd, short event, MessageSocket::Deadline end) {
  while (true) {
    int left = -1;
    if (end) {
      const auto time = std::chrono::ceil<milliseconds>(*end - steady_clock::now());
      left = static_cast<int>(std::max<int64_t>(time.count(), 0));
    }
    pollfd waiting = {fd, event, 0};
    const int ready = poll(&waiting, 1, left);
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

bool ReadBytes(int fd, char* to, size_t n, MessageSocket::Deadline end) {
  while (n > 0) {
    if (!AwaitEvent(fd, POLLIN, end)) return false;
    const ssize_t got = recv(fd, to, n, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return false;
    to += got;
    n -= static_cast<size_t>(got);
  }
  return true;
}

// A message of one byte with room for a file descriptor beside it.
struct FdMessage {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  char byte = 0;
  iovec bytes{&byte, 1};
  msghdr header{};

  FdMessage() {
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = room.data();
    header.msg_controllen = room.size();
  }
  FdMessage(const FdMessage&) = delete;
  FdMessage& operator=(const FdMessage&) = delete;
};

}  // namespace

void AppendNumber(std::string& bytes, uint32_t number) {
  std::array<char, sizeof(number)> raw{};
  std::memcpy(raw.data(), &number, sizeof(number));
  bytes.append(raw.data(), raw.size());
}

uint32_t TakeNumber(std::string_view& bytes) {
  uint32_t number = 0;
  std::memcpy(&number, bytes.data(), sizeof(number));
  bytes.remove_prefix(sizeof(number));
  return number;
}

Result<std::pair<MessageSocket, MessageSocket>> MessageSocket::MakePair() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Fail(Errc::kIo, "cannot make a socket between processes: {}", std::strerror(errno));
  }
  return std::pair(MessageSocket(ends[0]), MessageSocket(ends[1]));
}

void MessageSocket::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool MessageSocket::Await(milliseconds time) const {
  return AwaitEvent(fd_, POLLIN, steady_clock::now() + time);
}

bool MessageSocket::is_abandoned() const {
  pollfd other = {fd_, POLLRDHUP, 0};
  return poll(&other, 1, 0) > 0;
}

bool MessageSocket::Write(std::string_view message, Deadline end) {
  std::string bytes;
  AppendNumber(bytes, static_cast<uint32_t>(message.size()));
  bytes += message;
  for (std::string_view left = bytes; !left.empty();) {
    if (!AwaitEvent(fd_, POLLOUT, end)) return false;
    const ssize_t sent = send(fd_, left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent <= 0) return false;
    left.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::optional<std::string> MessageSocket::Read(Deadline end) {
  std::array<char, sizeof(uint32_t)> raw{};
  if (!ReadBytes(fd_, raw.data(), raw.size(), end)) return std::nullopt;
  std::string_view view(raw.data(), raw.size());
  const uint32_t length = TakeNumber(view);
  if (length > kLongestMessage) return std::nullopt;
  std::string message(length, '\0');
  if (!ReadBytes(fd_, message.data(), length, end)) return std::nullopt;
  return message;
}

bool MessageSocket::Send(const MessageSocket& other) {
  FdMessage message;
  cmsghdr* rights = CMSG_FIRSTHDR(&message.header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &other.fd_, sizeof(int));
  while (true) {
    const ssize_t sent = sendmsg(fd_, &message.header, MSG_NOSIGNAL);
    if (sent >= 0 || errno != EINTR) return sent == 1;
  }
}

MessageSocket MessageSocket::Receive() {
  FdMessage message;
  while (true) {
    const ssize_t got = recvmsg(fd_, &message.header, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    const cmsghdr* rights = got == 1 ? CMSG_FIRSTHDR(&message.header) : nullptr;
    if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return MessageSocket();
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(rights), sizeof(int));
    return MessageSocket(fd);
  }
}

}  // namespace moestro
