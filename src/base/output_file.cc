// SPDX-License-Identifier: MIT
#include "base/output_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/number.h"
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

namespace {

constexpr uint64_t kWindow = 16 * kMiB;  // bytes; at most two windows are dirty

// Less the user's umask.
mode_t ModeFor(FileReaders readers) { return readers == FileReaders::kOwner ? 0600 : 0666; }

// The name of a file before it gets its own. Process numbers repeat in containers, and so `n`
// distinguishes the name from files that other processes left. A name is at most 255 bytes on most
// systems.
std::string TemporaryName(const std::string& path, int n, size_t most_leaf_bytes) {
  const std::string again = n == 0 ? "" : Format("-{}", n);
  const std::string ending = Format(".{}{}.partial", getpid(), again);
  std::string leaf = std::filesystem::path(path).filename().string();
  if (leaf.size() + ending.size() > most_leaf_bytes) {
    leaf.resize(std::max(most_leaf_bytes, ending.size()) - ending.size());
    while (!leaf.empty() && (static_cast<unsigned char>(leaf.back()) & 0x80U) != 0) leaf.pop_back();
  }
  return Format("{}/{}{}", FolderOf(path), leaf.empty() ? "moestro" : leaf, ending);
}

// Tries names until `make` has made one; -1 with errno set if none could be made.
int MakeTemporary(const std::string& path, std::string& name,
                  const std::function<int(const char* name)>& make) {
  constexpr int kMostNames = 10'000;
  size_t most_leaf_bytes = 255;
  for (int n = 0; n < kMostNames; ++n) {
    name = TemporaryName(path, n, most_leaf_bytes);
    const int made = make(name.c_str());
    if (made >= 0) return made;
    if (errno == ENAMETOOLONG && most_leaf_bytes > 64) {
      most_leaf_bytes = 64;  // a file system with shorter names
    } else if (errno != EEXIST) {
      break;
    }
  }
  return -1;
}

// Opens a device or a pipe. Waits some seconds for a pipe's reader, which is often started beside
// this process.
int OpenStream(const char* path) {
  constexpr int kLooks = 250;
  constexpr useconds_t kBetween = 20'000;  // microseconds
  struct stat info = {};
  // Refuses to write over a mounted disk.
  const int careful = stat(path, &info) == 0 && S_ISBLK(info.st_mode) ? O_EXCL : 0;
  int fd = -1;
  for (int look = 0; look < kLooks; ++look) {
    fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | careful);
    if (fd >= 0 || errno != ENXIO) break;
    usleep(kBetween);
  }
  if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return fd;
}

Result<int> OpenStream(const Destination& to, const std::string& named) {
  const int fd = to.kind == Destination::Kind::kDescriptor
                     ? fcntl(to.descriptor, F_DUPFD_CLOEXEC, 0)
                     : OpenStream(to.path.c_str());
  if (fd >= 0) return fd;
  if (errno == ENXIO) {
    return Fail(Errc::kIo, "cannot write {}: nobody reads it; start its reader", named);
  }
  return Fail(Errc::kIo, "cannot write {}: {}", named, std::strerror(errno));
}

bool IsStream(const Destination& to) {
  return to.kind == Destination::Kind::kStream || to.kind == Destination::Kind::kDescriptor;
}

// The destination of a file of our own: replaces a file or link of the same name, nothing else.
Result<Destination> OwnDestination(const OutputPath& path) {
  struct stat there = {};
  const bool is_there = lstat(path.way().c_str(), &there) == 0;
  if (!is_there || S_ISREG(there.st_mode) || S_ISLNK(there.st_mode))
    return Destination{.path = path.way()};
  return Fail(Errc::kIo, "cannot write {}: it is there, and no file", path.text());
}

Result<Destination> FindDestination(const OutputPath& path) {
  TRY_STATUS(path.Check());
  if (path.is_own()) return OwnDestination(path);
  TRY(Destination to, FollowLinks(path.text()));
  if (to.kind != Destination::Kind::kFolder) return to;
  return Fail(Errc::kIo, "cannot write {}: it is a folder, not a file", path.text());
}

}  // namespace

Result<OutputFile> OutputFile::Create(OutputPath path, FileReaders readers) {
  TRY(Destination to, FindDestination(path));
  if (IsStream(to)) {
    TRY(const int fd, OpenStream(to, path.text()));
    return OutputFile(fd, std::move(path), std::move(to));
  }
  const mode_t mode = ModeFor(readers);
  const std::string folder = FolderOf(to.path);
  const int fd = open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, mode);
  if (fd >= 0) return OutputFile(fd, std::move(path), std::move(to));
  // The two errors of file systems without nameless files.
  if (errno != EOPNOTSUPP && errno != EISDIR) {
    return Fail(Errc::kIo, "cannot create a file in {}: {}", FolderOf(path.text()),
                std::strerror(errno));
  }
  std::string temporary;
  const int named = MakeTemporary(to.path, temporary, [mode](const char* name) {
    return open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  });
  if (named < 0) {
    return Fail(Errc::kIo, "cannot create a file beside {}: {}", path.text(), std::strerror(errno));
  }
  OutputFile file(named, std::move(path), std::move(to));
  file.unkept_path_ = std::move(temporary);
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      destination_(std::move(other.destination_)),
      unkept_path_(std::exchange(other.unkept_path_, {})),
      size_(other.size_),
      flushing_(other.flushing_),
      flushed_(other.flushed_) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (!unkept_path_.empty()) unlink(unkept_path_.c_str());
}

bool OutputFile::is_stream() const { return IsStream(destination_); }

Status OutputFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write");
    bytes = bytes.subspan(static_cast<size_t>(written));
    size_ += static_cast<uint64_t>(written);
  }
  if (size_ - flushing_ >= kWindow && !is_stream()) Flush();
  return {};
}

Status OutputFile::Skip(uint64_t bytes) {
  if (is_stream()) {
    static constexpr std::array<std::byte, 64 * kKiB> kZeros = {};
    for (; bytes > kZeros.size(); bytes -= kZeros.size()) TRY_STATUS(Write(kZeros));
    return Write(std::span(kZeros).first(bytes));
  }
  const auto end = static_cast<off_t>(size_ + bytes);
  if (ftruncate(fd_, end) != 0 || lseek(fd_, end, SEEK_SET) != end) return Failed("write");
  size_ += bytes;
  Flush();
  return {};
}

// Both system calls are hints: a file system without them costs page cache, not correctness.
void OutputFile::Flush() {
  const auto older = static_cast<off_t>(flushed_);
  const auto newer = static_cast<off_t>(flushing_);
  const auto end = static_cast<off_t>(size_);
  sync_file_range(fd_, newer, end - newer, SYNC_FILE_RANGE_WRITE);
  if (newer > older) {
    sync_file_range(
        fd_, older, newer - older,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    posix_fadvise(fd_, older, newer - older, POSIX_FADV_DONTNEED);
  }
  flushed_ = flushing_;
  flushing_ = size_;
}

// Gives a nameless file a temporary name: linkat() cannot replace a file, rename() can.
Status OutputFile::GiveTemporaryName() {
  const std::string self = Format("/proc/self/fd/{}", fd_);
  std::string temporary;
  const int named = MakeTemporary(destination_.path, temporary, [&self](const char* name) {
    return linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW);
  });
  if (named != 0) return Failed("name");
  unkept_path_ = std::move(temporary);
  return {};
}

// Checks that other processes have put neither a spared file nor anything but a file or link at the
// destination since Create().
Status OutputFile::MayReplace() const {
  TRY_STATUS(path_.Check());
  struct stat there = {};
  if (lstat(destination_.path.c_str(), &there) != 0) return {};
  if (S_ISREG(there.st_mode) || S_ISLNK(there.st_mode)) return {};
  return Fail(Errc::kIo, "cannot write {}: it is no file any more", path_.text());
}

Status OutputFile::Publish() {
  const bool cannot_flush = fsync(fd_) != 0;
  if (is_stream()) {
    // fsync() fails with one of these on pipes and most devices, which have nothing to flush.
    if (cannot_flush && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
      return Failed("flush");
    return close(std::exchange(fd_, -1)) == 0 ? Status() : Failed("close");
  }
  if (cannot_flush) return Failed("flush");
  posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
  TRY_STATUS(MayReplace());
  if (unkept_path_.empty()) TRY_STATUS(GiveTemporaryName());
  if (close(std::exchange(fd_, -1)) != 0) return Failed("close");
  if (rename(unkept_path_.c_str(), destination_.path.c_str()) != 0) return Failed("name");
  unkept_path_ = destination_.path;
  return {};
}

Status OutputFile::Failed(const char* what) const {
  return Fail(Errc::kIo, "cannot {} {} at {}: {}", what, path_.text(), FormatBytes(size_),
              std::strerror(errno));
}

Status CheckMayCreate(const OutputPath& path) {
  TRY([[maybe_unused]] const Destination to, FindDestination(path));
  return {};
}

Result<uint64_t> FreeBytesFor(const OutputPath& path) {
  const Result<Destination> to = FindDestination(path);
  if (to && IsStream(*to)) return UINT64_MAX;
  const std::string folder = FolderOf(to ? to->path : path.text());
  struct statvfs info = {};
  if (statvfs(folder.c_str(), &info) != 0) {
    return Fail(Errc::kIo, "cannot write into folder {}: {}", folder, std::strerror(errno));
  }
  return uint64_t{info.f_bavail} * info.f_frsize;
}

std::string NearestFolder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  fs::path at = fs::absolute(folder, unknown);
  while (at.has_relative_path() && !fs::is_directory(at, unknown)) at = at.parent_path();
  return at.string();
}

Result<uint64_t> FreeBytesAt(const std::string& folder) {
  return FreeBytesFor((std::filesystem::path(NearestFolder(folder)) / "x").string());
}

Result<bool> LiesInMemory(const std::string& folder) {
  struct statfs info = {};
  if (statfs(folder.c_str(), &info) != 0) {
    return Fail(Errc::kIo, "cannot examine folder {}: {}", folder, std::strerror(errno));
  }
  return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

}  // namespace moestro
