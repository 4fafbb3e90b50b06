// SPDX-License-Identifier: MIT
#include "hub/file_lock.h"

#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/format.h"

namespace moestro {
namespace {

// Errors of file systems without locks: NFS without its daemon, Lustre, FUSE, shares.
bool IsWithoutLocks(int error) {
  return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL;
}

// Takes a socket name that one process of the machine can hold at a time, and that becomes free
// when the process ends. On failure the result is empty and errno set; EADDRINUSE: another process
// holds the name.
UniqueFd TakeName(const struct stat& file) {
  UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return fd;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // A name that begins with a zero byte lies in no folder.
  const std::string name = Format("moestro-lock-{:x}-{:x}", file.st_dev, file.st_ino);
  std::ranges::copy(name, std::begin(address.sun_path) + 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) return fd;
  return UniqueFd();
}

}  // namespace

Result<std::optional<FileLock>> FileLock::Try(const SharedFolder& folder, const std::string& name) {
  constexpr mode_t kMode = 0644;
  while (true) {
    TRY(UniqueFd fd, folder.OpenFile(name, kMode));
    struct stat ours{};
    const bool is_known = fstat(fd.get(), &ours) == 0;
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::nullopt;
      if (errno == EINTR) continue;
      if (!is_known || !IsWithoutLocks(errno)) {
        return Fail(Errc::kIo, "cannot lock {}: {}", folder.PathOf(name), std::strerror(errno));
      }
      UniqueFd taken = TakeName(ours);
      if (taken.get() < 0 && errno == EADDRINUSE) return std::nullopt;
      return FileLock(std::move(taken), true);
    }
    // Another process may have removed the file between the two calls; others would not find a lock
    // on it.
    if (folder.Names(name, fd.get())) return FileLock(std::move(fd), false);
  }
}

}  // namespace moestro
