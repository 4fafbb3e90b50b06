// SPDX-License-Identifier: MIT
#include "serve/service_notice.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/log.h"
#include "base/printable.h"

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

}  // namespace moestro
