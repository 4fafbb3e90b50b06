// SPDX-License-Identifier: MIT
#include "hub/file_fetch.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "base/input_file.h"
#include "base/number.h"
#include "base/output_file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/work_limit.h"
#include "hub/web_request.h"

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

namespace {

constexpr double kTurnSeconds = 0.05;      // at most, so that a stop is seen
constexpr uint64_t kHashPiece = 4 * kMiB;  // bytes hashed between two checks of the connections
constexpr uint64_t kProgressBytes = 64 * kKiB;  // bytes after which failures are counted anew

bool IsTaken(const std::optional<HeadVerdict>& verdict) {
  return verdict == HeadVerdict::kTake || verdict == HeadVerdict::kTakeWhole;
}

HashKind KindOf(const std::string& etag) {
  constexpr size_t kGitDigits = 40;
  return etag.size() == kGitDigits ? HashKind::kGitBlob : HashKind::kSha256;
}

}  // namespace

FileFetch::FileFetch(HubClient& client, const HubLayout& layout, FetchState wanted,
                     FetchOptions options, Watcher watcher)
    : client_(client),
      layout_(layout),
      wanted_(std::move(wanted)),
      options_(options),
      watcher_(std::move(watcher)) {}

Status FileFetch::Run() {
  TRY_STATUS(Begin());
  Status status;
  while (status && !(plan_->is_complete() && !is_behind())) {
    if (client_.stop().is_requested())
      status = Fail(Errc::kInterrupted, "stopped");
    else
      status = Turn();
  }
  for (const auto& [id, running] : running_) transfers_->Cancel(id);
  if (status) return Finish();
  // Saves the progress for the next run. If the disk is full this fails too, and the state saved
  // before stays valid.
  const Status saved = Save();
  if (!saved && status.error().code == Errc::kInterrupted) return saved;
  return status;
}

Status FileFetch::Begin() {
  TRY(transfers_, WebTransfers::Create(client_.web_options()));
  TRY(PartFile part, PartFile::Open(layout_, wanted_));
  part_.emplace(std::move(part));
  plan_.emplace(wanted_.size, part_->state().done, part_->state().content_etag, options_.ranges);
  hash_.emplace(KindOf(wanted_.etag), wanted_.size);
  retries_.emplace(client_.retry());
  saved_at_ = SteadySeconds();
  return {};
}

Status FileFetch::Turn() {
  TRY_STATUS(AskForMore());
  // Does not wait for the network while hashing lags behind. Without an open request the call only
  // sleeps.
  const std::vector<WebEnd> ends = transfers_->Wait(is_behind() ? 0.0 : kTurnSeconds);
  if (!fault_) return std::move(fault_);
  if (must_start_again_) {
    TRY_STATUS(StartAgain());
  } else {
    for (const WebEnd& end : ends) TRY_STATUS(OnEnd(end));
  }
  TRY_STATUS(HashSome(kHashPiece));
  if (unsaved_ > 0 &&
      (unsaved_ >= options_.save_bytes || SteadySeconds() - saved_at_ >= options_.save_seconds)) {
    TRY_STATUS(Save());
  }
  if (watcher_) watcher_({.there = plan_->done().bytes(), .checked = checked_});
  return {};
}

Status FileFetch::Resolve() {
  const std::string address = client_.AddressOf(wanted_.repo, wanted_.commit, wanted_.file);
  TRY(const FileAddress place, client_.Find(address));
  if (place.size != wanted_.size) return OtherSize(FormatBytes(place.size));
  if (!place.etag.empty() && place.etag.size() == wanted_.etag.size() &&
      place.etag != wanted_.etag) {
    return Fail(Errc::kInvalidFile,
                "the hub lists {} as {} and sends it as {}; try again, it may be changing",
                Printable(wanted_.file), wanted_.etag, Printable(place.etag));
  }
  address_ = place.address;
  return {};
}

Status FileFetch::AskForMore() {
  while (SteadySeconds() >= not_before_) {
    if (plan_->is_complete()) return {};
    if (address_.empty()) TRY_STATUS(Resolve());
    const auto request = plan_->Next();
    if (!request) return {};
    const uint64_t number = request->number;
    const auto slot = std::make_shared<uint64_t>(0);  // the transfer's number, once it is known
    const bool has_token = MayHaveToken(client_.settings(), address_);
    TRY(const uint64_t id,
        transfers_->Start({.address = address_,
                           .range = request->range,
                           .if_range = request->if_range,
                           .token = has_token ? client_.settings().token : ""},
                          {.on_head =
                               [this, slot, number](const WebHead& head) {
                                 if (must_start_again_ || !fault_) return false;
                                 const HeadVerdict verdict = plan_->OnHead(number, head);
                                 running_[*slot].verdict = verdict;
                                 must_start_again_ = verdict == HeadVerdict::kStartAgain;
                                 return IsTaken(verdict);
                               },
                           .on_body =
                               [this, slot, number](std::span<const std::byte> bytes) {
                                 if (must_start_again_ || !fault_) return false;
                                 Take(number, bytes);
                                 running_[*slot].bytes += bytes.size();
                                 return fault_.has_value();
                               }}));
    *slot = id;
    running_[id] = {.number = number};
  }
  return {};
}

void FileFetch::Take(uint64_t number, std::span<const std::byte> bytes) {
  if (bytes.size() > plan_->room(number)) {
    fault_ = OtherSize("more");
    return;
  }
  fault_ = part_->Write(bytes, plan_->position(number));
  if (!fault_) return;
  plan_->Arrived(number, bytes.size());
  arrived_ += bytes.size();
  unsaved_ += bytes.size();
}

Status FileFetch::StartAgain() {
  for (const auto& [id, running] : running_) transfers_->Cancel(id);
  running_.clear();
  must_start_again_ = false;
  checked_ = 0;
  unsaved_ = 0;
  hash_.emplace(KindOf(wanted_.etag), wanted_.size);
  address_.clear();
  if (plan_->has_failed()) {
    return Fail(Errc::kIo, "the server sends another {} at each try", Printable(wanted_.file));
  }
  return part_->Clear();
}

Status FileFetch::OnEnd(const WebEnd& end) {
  const auto found = running_.find(end.id);
  if (found == running_.end()) return {};
  const Running running = found->second;
  running_.erase(found);
  plan_->Ended(running.number);
  if (end.fault == WebFault::kNotSecure) {
    return Fail(Errc::kIo, "the server of {} is not who it says: {}", Printable(wanted_.file),
                Printable(end.why));
  }
  if (end.fault == WebFault::kCut || end.fault == WebFault::kNoServer) {
    address_.clear();
    return OnFailure(end, end.why);
  }
  const std::string status = Format("status {}", end.head.status);
  switch (running.verdict.value_or(HeadVerdict::kTryAgain)) {
    case HeadVerdict::kTake:
    case HeadVerdict::kTakeWhole:
      if (running.bytes == 0) return OnFailure(end, "no bytes came");
      retries_->Progressed();
      redirects_ = 0;
      return {};
    case HeadVerdict::kOtherSize:
      return OtherSize(status);
    case HeadVerdict::kRefused:
      return Fail(Errc::kIo, "the server does not give {}: {}", Printable(wanted_.file), status);
    case HeadVerdict::kResolveAgain:
      if (MayFollow(end.head.redirect)) {
        address_ = end.head.redirect;
        ++redirects_;
        return {};
      }
      address_.clear();
      break;
    case HeadVerdict::kTryAgain:
    case HeadVerdict::kStartAgain:
      break;
  }
  return OnFailure(end, status);
}

// Whether to follow a redirect: a server that answers HEAD itself may redirect GET.
bool FileFetch::MayFollow(const std::string& redirect) const {
  constexpr int kMostHops = 8;
  return OriginOf(redirect) && redirects_ < kMostHops &&
         (IsPlainHttp(address_) || !IsPlainHttp(redirect));
}

Status FileFetch::OnFailure(const WebEnd& end, const std::string& why) {
  if (arrived_ >= std::min(kProgressBytes, options_.ranges.range_bytes)) retries_->Progressed();
  arrived_ = 0;
  const double now = SteadySeconds();
  // One failure is counted for all connections, which break together when the network goes.
  const double asked = end.retry_after.value_or(0.0);
  if (now < not_before_ && asked <= client_.retry().longest_asked) {
    not_before_ = std::max(not_before_, now + asked);
    return {};
  }
  const auto wait = retries_->AfterFailure(end.retry_after);
  if (wait) {
    not_before_ = std::max(not_before_, now + *wait);
    return {};
  }
  return Fail(Errc::kIo, "{} does not come: {}{}; what came is kept, pull again to go on",
              Printable(wanted_.file), Printable(why),
              end.retry_after ? Format(", try again in {:.0f} seconds", *end.retry_after) : "");
}

bool FileFetch::is_behind() const { return checked_ < plan_->done().FirstMissing(0); }

Status FileFetch::HashSome(uint64_t most_bytes) {
  const uint64_t end = std::min(plan_->done().FirstMissing(0), checked_ + most_bytes);
  std::vector<std::byte> buffer(std::min(end - std::min(checked_, end), kMiB));
  while (checked_ < end) {
    const auto piece = std::span(buffer).first(std::min<uint64_t>(buffer.size(), end - checked_));
    TRY_STATUS(part_->Read(piece, checked_));
    hash_->Add(piece);
    checked_ += piece.size();
  }
  return {};
}

Status FileFetch::Save() {
  unsaved_ = 0;
  saved_at_ = SteadySeconds();
  return part_->Save(plan_->done(), plan_->content_etag());
}

Status FileFetch::Finish() {
  const std::string hash = hash_->Finish();
  if (hash == wanted_.etag) return part_->Publish();
  part_->Delete();
  return Fail(Errc::kInvalidFile,
              "what came for {} has the hash {} and not {}; it is deleted, pull again",
              Printable(wanted_.file), hash, wanted_.etag);
}

std::unexpected<Error> FileFetch::OtherSize(const std::string& said) const {
  return Fail(Errc::kInvalidFile, "{} has {} by the hub, and its server has another size ({})",
              Printable(wanted_.file), FormatBytes(wanted_.size), said);
}

}  // namespace moestro
