// SPDX-License-Identifier: MIT
#include "hub/shared_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

std::unexpected<Error> CannotUse(const std::string& folder, std::string_view why) {
  return Fail(Errc::kIo,
              "cannot use the folder {}: {}; name a folder that can be written in "
              "HF_HUB_CACHE",
              Printable(folder, 400), why);
}

// Opens the folder behind a link that this user or root has made; -1: another user's link, or no
// link.
int FollowOwnLink(int parent, const char* name) {
  const UniqueFd link(openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat info = {};
  if (link.get() < 0 || fstat(link.get(), &info) != 0 || !S_ISLNK(info.st_mode)) return -1;
  if (info.st_uid != 0 && info.st_uid != geteuid()) return -1;
  std::array<char, PATH_MAX> target{};
  const ssize_t n = readlinkat(link.get(), "", target.data(), target.size() - 1);
  return n > 0 ? openat(parent, target.data(), kFolder) : -1;
}

// Opens a folder in `parent`, or makes it. -1: errno has the reason; ELOOP or ENOTDIR for a link
// that is not followed.
int Enter(int parent, const std::string& name, SharedFolder::Way way) {
  int fd = openat(parent, name.c_str(), kFolder | O_NOFOLLOW);
  if (fd >= 0 || way == SharedFolder::Way::kNoLinks) return fd;
  constexpr mode_t kMode = 0777;  // less the user's umask
  if (errno == ENOENT && (mkdirat(parent, name.c_str(), kMode) == 0 || errno == EEXIST)) {
    fd = openat(parent, name.c_str(), kFolder | O_NOFOLLOW);
  }
  if (fd >= 0 || (errno != ELOOP && errno != ENOTDIR)) return fd;
  const int why = errno;
  fd = FollowOwnLink(parent, name.c_str());
  if (fd < 0) errno = why;
  return fd;
}

bool IsLink(int parent, const std::string& name) {
  struct stat info = {};
  return fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode);
}

}  // namespace

Result<SharedFolder> SharedFolder::Open(const std::string& cache, const std::string& path,
                                        Way way) {
  CHECK(path.starts_with(cache));
  if (way == Way::kMake) {
    std::error_code error;
    fs::create_directories(cache, error);
    if (error) return CannotUse(cache, error.message());
  }
  UniqueFd at(open(cache.c_str(), kFolder));
  if (at.get() < 0) return CannotUse(cache, std::strerror(errno));
  std::string walked = cache;
  for (const fs::path& part : fs::path(path.substr(cache.size())).relative_path()) {
    const std::string name = part.string();
    if (name.empty() || name == ".") continue;
    CHECK(name != "..");
    walked += "/" + name;
    UniqueFd next(Enter(at.get(), name, way));
    if (next.get() < 0) {
      const int why = errno;
      if (!IsLink(at.get(), name)) return CannotUse(walked, std::strerror(why));
      if (way == Way::kNoLinks) {
        return Fail(Errc::kIo,
                    "{} is a link, and nothing behind a link is removed; remove the link if you no "
                    "longer need it",
                    Printable(walked, 400));
      }
      return CannotUse(walked, "it is another user's link, which is not followed");
    }
    at = std::move(next);
  }
  return SharedFolder(std::move(at), path);
}

std::string SharedFolder::WayTo(const std::string& name) const {
  return Format("/proc/self/fd/{}/{}", fd_.get(), name);
}

OutputPath SharedFolder::Output(const std::string& name) const {
  return OutputPath::OfOwn(PathOf(name), WayTo(name));
}

Result<UniqueFd> SharedFolder::OpenFile(const std::string& name, mode_t mode) const {
  UniqueFd fd(openat(fd_.get(), name.c_str(),
                     O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, mode));
  if (fd.get() < 0 && errno == ELOOP) return CannotUse(path_, name + " in it is a link");
  if (fd.get() < 0) return CannotUse(path_, std::strerror(errno));
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return CannotUse(path_, name + " in it is no file");
  }
  if (info.st_nlink > 1)
    return CannotUse(path_, name + " in it is a file that lies elsewhere, too");
  return fd;
}

bool SharedFolder::Names(const std::string& name, int file) const {
  struct stat ours = {};
  struct stat named = {};
  return fstat(file, &ours) == 0 &&
         fstatat(fd_.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

bool SharedFolder::Rename(const std::string& from, const std::string& to) const {
  return renameat(fd_.get(), from.c_str(), fd_.get(), to.c_str()) == 0;
}

bool SharedFolder::MakeLink(const std::string& name, const std::string& target) const {
  return symlinkat(target.c_str(), fd_.get(), name.c_str()) == 0;
}

bool SharedFolder::Remove(const std::string& name) const {
  return unlinkat(fd_.get(), name.c_str(), 0) == 0 || errno == ENOENT;
}

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
