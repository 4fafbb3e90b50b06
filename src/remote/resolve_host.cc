// SPDX-License-Identifier: MIT
#include "remote/resolve_host.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/format.h"
#include "base/unique_fd.h"

namespace moestro {
namespace {

constexpr int kConnectMilliseconds = 2000;

Status Connect(const sockaddr_in& address, const std::string& name) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto fail = [&](int error) {
    return Fail(Errc::kDevice, "the remote host {}: {}", name, std::strerror(error));
  };
  if (fd.get() < 0) return fail(errno);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    return {};
  if (errno != EINPROGRESS) return fail(errno);
  pollfd waited{.fd = fd.get(), .events = POLLOUT, .revents = 0};
  if (poll(&waited, 1, kConnectMilliseconds) <= 0) return fail(ETIMEDOUT);
  int error = 0;
  socklen_t bytes = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  return error == 0 ? Status() : fail(error);
}

}  // namespace

Result<std::string> ResolveHost(const RemoteHost& host, bool takes_public) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.host.c_str(), nullptr, &hints, &found);
  if (error != 0 || found == nullptr) {
    return Fail(Errc::kDevice, "the remote host {}: {}", host.address(),
                error != 0 ? gai_strerror(error) : "no address");
  }
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof(address));
  freeaddrinfo(found);
  address.sin_port = htons(host.port);
  const uint32_t number = ntohl(address.sin_addr.s_addr);
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  if (!takes_public && !IsLoopback(number) && !IsPrivate(number)) {
    return Fail(Errc::kUsage,
                "{} is {}, which is in no private network, and what goes there is not encrypted: "
                "tunnel it with ssh or WireGuard, or give --remote-insecure",
                host.address(), text.data());
  }
  TRY_STATUS(Connect(address, host.address()));
  return Format("{}:{}", text.data(), host.port);
}

}  // namespace moestro
