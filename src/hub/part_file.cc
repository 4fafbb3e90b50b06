// SPDX-License-Identifier: MIT
#include "hub/part_file.h"

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

// Ranges by the state file; empty if it is missing, damaged or of another content.
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
  TRY(SharedFolder folder,
      SharedFolder::Open(layout.cache(), layout.BlobFolder(wanted.repo), SharedFolder::Way::kMake));
  TRY(UniqueFd fd, folder.OpenFile(HubLayout::PartName(wanted.etag), kMode));
  wanted.done.Clear();
  wanted.content_etag.clear();
  PartFile part(std::move(fd), std::move(wanted), std::move(folder));
  struct stat info{};
  if (fstat(part.fd_.get(), &info) != 0) return part.Failed("look at");
  FetchState& state = part.state_;
  RangeSet done = DoneOf(part.folder_.PathOf(part.state_name_), state, state.content_etag);
  const bool is_ours = static_cast<uint64_t>(info.st_size) == state.size;
  if (is_ours && !done.ranges().empty()) {
    state.done = std::move(done);
    return part;
  }
  state.content_etag.clear();
  TRY_STATUS(part.Clear());
  return part;
}

PartFile::PartFile(UniqueFd fd, FetchState state, SharedFolder folder)
    : fd_(std::move(fd)),
      state_(std::move(state)),
      folder_(std::move(folder)),
      part_(HubLayout::PartName(state_.etag)),
      state_name_(HubLayout::StateName(state_.etag)) {}

std::unexpected<Error> PartFile::Failed(const char* what) const {
  return Fail(Errc::kIo, "cannot {} {}: {}", what, folder_.PathOf(part_), std::strerror(errno));
}

Status PartFile::Write(std::span<const std::byte> bytes, uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == ENOSPC || errno == EDQUOT)) {
      return Fail(Errc::kIo,
                  "the disk is full: cannot write {}; what came is kept, make room and pull again",
                  folder_.PathOf(part_));
    }
    if (n <= 0) return Failed("write");
    bytes = bytes.subspan(static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
  return {};
}

Status PartFile::Read(std::span<std::byte> bytes, uint64_t at) const {
  while (!bytes.empty()) {
    const ssize_t n = pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENODATA;
    if (n <= 0) return Failed("read");
    bytes = bytes.subspan(static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
  return {};
}

Status PartFile::Save(const RangeSet& done, const std::string& content_etag) {
  if (fdatasync(fd_.get()) != 0) return Failed("flush");
  state_.done = done;
  state_.content_etag = content_etag;
  const std::string text = StateText(state_);
  TRY(OutputFile file, OutputFile::Create(folder_.Output(state_name_)));
  TRY_STATUS(file.Write(std::as_bytes(std::span(text))));
  TRY_STATUS(file.Publish());
  file.Keep();
  return {};
}

Status PartFile::Clear() {
  // The state goes first: a state that lists bytes must not outlive them.
  if (!folder_.Remove(state_name_)) return Failed("forget");
  if (ftruncate(fd_.get(), 0) != 0 || ftruncate(fd_.get(), static_cast<off_t>(state_.size)) != 0) {
    return Failed("make");
  }
  return Save({}, {});
}

Status PartFile::Publish() {
  if (fsync(fd_.get()) != 0) return Failed("flush");
  if (!folder_.Rename(part_, state_.etag)) return Failed("name");
  folder_.Remove(state_name_);
  return {};
}

void PartFile::Delete() {
  folder_.Remove(state_name_);
  folder_.Remove(part_);
}

}  // namespace moestro
