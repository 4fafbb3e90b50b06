// SPDX-License-Identifier: MIT
#include "hub/part_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "base/small_file.h"

namespace moestro {
namespace {

// Of the state file; nothing believable: nothing is there.
RangeSet DoneOf(const std::string& path, const FetchState& wanted, std::string& content_etag) {
  const auto state = ParseState(ReadSmallFile(path, kMostStateBytes + 1).value_or(""));
  if (!state || !MayGoOn(*state, wanted)) return {};
  content_etag = state->content_etag;
  return state->done;
}

}  // namespace

Result<PartFile> PartFile::Open(const HubLayout& layout, FetchState wanted) {
  rlimit most{};  // a longer file would end the process
  if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < wanted.size) {
    return Fail(Errc::kIo, "{} has {}, and files of this process may have {} (ulimit -f)",
                Printable(wanted.file), FormatBytes(wanted.size), FormatBytes(most.rlim_cur));
  }
  constexpr mode_t kMode = 0666;  // less the user's umask
  const std::string path = layout.Part(wanted.repo, wanted.etag);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kMode);
  if (fd < 0) {
    return Fail(Errc::kIo, "cannot write {}: {}; name a folder that can be written in HF_HUB_CACHE",
                path, std::strerror(errno));
  }
  wanted.done.Clear();
  wanted.content_etag.clear();
  PartFile part(fd, std::move(wanted), layout);
  struct stat info{};
  if (fstat(fd, &info) != 0) return part.Failed("look at");
  FetchState& state = part.state_;
  RangeSet done = DoneOf(part.state_path_, state, state.content_etag);
  const bool is_ours = static_cast<uint64_t>(info.st_size) == state.size;
  if (is_ours && !done.ranges().empty()) {
    state.done = std::move(done);
    return part;
  }
  state.content_etag.clear();
  TRY_STATUS(part.Clear());
  return part;
}

PartFile::PartFile(int fd, FetchState state, const HubLayout& layout)
    : fd_(fd),
      state_(std::move(state)),
      part_path_(layout.Part(state_.repo, state_.etag)),
      state_path_(layout.State(state_.repo, state_.etag)),
      blob_path_(layout.Blob(state_.repo, state_.etag)) {}

PartFile::PartFile(PartFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      state_(std::move(other.state_)),
      part_path_(std::move(other.part_path_)),
      state_path_(std::move(other.state_path_)),
      blob_path_(std::move(other.blob_path_)) {}

PartFile::~PartFile() {
  if (fd_ >= 0) close(fd_);
}

std::unexpected<Error> PartFile::Failed(const char* what) const {
  return Fail(Errc::kIo, "cannot {} {}: {}", what, part_path_, std::strerror(errno));
}

Status PartFile::Write(std::span<const std::byte> bytes, uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == ENOSPC || errno == EDQUOT)) {
      return Fail(Errc::kIo,
                  "the disk is full: cannot write {}; what came is kept, make room and pull again",
                  part_path_);
    }
    if (n <= 0) return Failed("write");
    bytes = bytes.subspan(static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
  return {};
}

Status PartFile::Read(std::span<std::byte> bytes, uint64_t at) const {
  while (!bytes.empty()) {
    const ssize_t n = pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENODATA;
    if (n <= 0) return Failed("read");
    bytes = bytes.subspan(static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
  return {};
}

Status PartFile::Save(const RangeSet& done, const std::string& content_etag) {
  if (fdatasync(fd_) != 0) return Failed("flush");
  state_.done = done;
  state_.content_etag = content_etag;
  const std::string text = StateText(state_);
  TRY(OutputFile file, OutputFile::Create(state_path_));
  TRY_STATUS(file.Write(std::as_bytes(std::span(text))));
  TRY_STATUS(file.Publish());
  file.Keep();
  return {};
}

Status PartFile::Clear() {
  // First: a state that speaks of bytes must not outlive them.
  if (unlink(state_path_.c_str()) != 0 && errno != ENOENT) return Failed("forget");
  if (ftruncate(fd_, 0) != 0 || ftruncate(fd_, static_cast<off_t>(state_.size)) != 0) {
    return Failed("make");
  }
  return Save({}, {});
}

Status PartFile::Publish() {
  if (fsync(fd_) != 0) return Failed("flush");
  if (rename(part_path_.c_str(), blob_path_.c_str()) != 0) return Failed("name");
  unlink(state_path_.c_str());
  return {};
}

void PartFile::Delete() {
  unlink(state_path_.c_str());
  unlink(part_path_.c_str());
}

}  // namespace moestro
