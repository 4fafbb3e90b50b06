// SPDX-License-Identifier: MIT
#include "base/output_path.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/format.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr int kMostLinks = 40;  // the kernel's own limit

std::string LeafOf(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

bool LiesInProc(const std::string& folder) {
  struct statfs info = {};
  return statfs(folder.c_str(), &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
}

bool IsSameFolder(const std::string& a, const std::string& b) {
  struct stat first = {};
  struct stat second = {};
  return stat(a.c_str(), &first) == 0 && stat(b.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// True if the kernel's fs.protected_symlinks would refuse to follow the link in its folder.
bool IsStrangersLink(const struct stat& link, const struct stat& folder) {
  const bool is_shared = (folder.st_mode & S_ISVTX) != 0 && (folder.st_mode & S_IWOTH) != 0;
  return is_shared && link.st_uid != geteuid() && link.st_uid != folder.st_uid;
}

std::optional<std::string> ReadLink(const std::string& path) {
  std::array<char, PATH_MAX> target{};
  const ssize_t n = readlink(path.c_str(), target.data(), target.size());
  if (n <= 0 || static_cast<size_t>(n) == target.size()) return std::nullopt;
  return std::string(target.data(), static_cast<size_t>(n));
}

// Resolves a link of /proc, which leads to an open file whatever its text is.
Result<Destination> FollowOpenFile(const std::string& path, const std::string& folder) {
  const std::string leaf = LeafOf(path);
  int descriptor = -1;
  const auto [end, error] = std::from_chars(leaf.data(), leaf.data() + leaf.size(), descriptor);
  const bool is_number = error == std::errc{} && end == leaf.data() + leaf.size();
  if (!is_number || !IsSameFolder(folder, "/proc/self/fd")) {
    struct stat info = {};
    if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
      return Destination{.path = path, .kind = Destination::Kind::kFolder};
    return Destination{.path = path, .kind = Destination::Kind::kStream};
  }
  const int flags = fcntl(descriptor, F_GETFD);
  if (flags >= 0 && (flags & FD_CLOEXEC) == 0) {  // files opened by this process have that flag
    return Destination{
        .path = path, .kind = Destination::Kind::kDescriptor, .descriptor = descriptor};
  }
  return Fail(Errc::kIo, "cannot write {}: this process was not given it", path);
}

Destination::Kind KindOf(mode_t mode) {
  if (S_ISREG(mode)) return Destination::Kind::kFile;
  return S_ISDIR(mode) ? Destination::Kind::kFolder : Destination::Kind::kStream;
}

std::unexpected<Error> CannotWrite(const std::string& path, std::string_view why) {
  return Fail(Errc::kIo, "cannot write {}: {}", path, why);
}

}  // namespace

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

Result<Destination> FollowLinks(const std::string& path) {
  std::string at = path;
  for (int followed = 0; followed <= kMostLinks; ++followed) {
    if (at.empty() || at.ends_with('/')) {
      return CannotWrite(path, "that names a folder, not a file");
    }
    const std::string folder = FolderOf(at);
    struct stat info = {};
    if (lstat(at.c_str(), &info) != 0) {
      if (errno != ENOENT) return CannotWrite(path, std::strerror(errno));
      struct stat above = {};
      if (stat(folder.c_str(), &above) != 0) {
        return CannotWrite(path, Format("folder {}: {}", folder, std::strerror(errno)));
      }
      return Destination{.path = std::move(at)};
    }
    if (!S_ISLNK(info.st_mode)) return Destination{.path = at, .kind = KindOf(info.st_mode)};
    const std::optional<std::string> target = ReadLink(at);
    if (!target) return CannotWrite(path, Format("cannot read the link {}", at));
    // The link /proc/self leads on by its text; links below the process's folder do not.
    if (LiesInProc(folder) && IsSameFolder(folder, "/proc") == false) {
      return FollowOpenFile(at, folder);
    }
    struct stat above = {};
    if (stat(folder.c_str(), &above) == 0 && IsStrangersLink(info, above)) {
      return CannotWrite(path, Format("{} is another user's link in a folder that everybody can "
                                      "write; remove it or give another name",
                                      at));
    }
    at = target->starts_with('/') ? *target : Format("{}/{}", folder, *target);
  }
  return CannotWrite(path, "its links lead in a circle");
}

std::optional<FileIdentity> FileIdentity::Of(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode) && !S_ISBLK(info.st_mode)) return std::nullopt;
    return FileIdentity{.device = info.st_dev, .inode = info.st_ino};
  }
  const Result<Destination> led = FollowLinks(path);
  if (!led || led->kind != Destination::Kind::kNothing) return std::nullopt;
  if (stat(FolderOf(led->path).c_str(), &info) != 0) return std::nullopt;
  return FileIdentity{.device = info.st_dev, .inode = info.st_ino, .name = LeafOf(led->path)};
}

OutputPath OutputPath::OfOwn(std::string path, std::string way) {
  OutputPath made(std::move(path));
  made.way_ = std::move(way);
  made.is_own_ = true;
  return made;
}

OutputPath OutputPath::Beside(std::string path) const {
  OutputPath made = *this;
  made.text_ = std::move(path);
  return made;
}

void OutputPath::Spare(std::span<const std::string> paths, Use use) {
  for (const std::string& path : paths) {
    if (!path.empty()) spared_.push_back({.path = path, .use = use});
  }
}

Status OutputPath::Check() const {
  if (empty() || spared_.empty()) return {};
  const std::optional<FileIdentity> file = FileIdentity::Of(text_);
  if (!file) return {};
  for (const auto& [path, use] : spared_) {
    if (FileIdentity::Of(path) != file) continue;
    if (use == Use::kWritten) {
      return Fail(Errc::kUsage, "{} is to be written twice, also as {}; give two names", text_,
                  path);
    }
    const std::string as = path == text_ ? "" : Format(" as {}", path);
    return Fail(Errc::kIo, "{} is read here{} and cannot be the output too; give another name",
                text_, as);
  }
  return {};
}

}  // namespace moestro
