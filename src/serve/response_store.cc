// SPDX-License-Identifier: MIT
#include "serve/response_store.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "base/cache_files.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/terminal.h"
#include "base/text.h"
#include "serve/answer.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

// A file: this line, the answer, the conversation, each ended by a line's end, which JSON has none
// of inside. A file that was cut off lacks the last one.
constexpr std::string_view kFirstLine = "moestro response 1\n";
constexpr std::string_view kIdBegin = "resp_";
constexpr size_t kDigits = 16;  // of an id and of an owner
constexpr std::string_view kAnswerEnding = ".response";
constexpr size_t kMostFile = size_t{64} << 20;
constexpr double kLookSeconds = 60.0;
// The part of the folder's bytes that is freed beyond what has to be.
constexpr uint64_t kSpare = 16;
// Small files count as so large a part of the folder's bytes, so that their number is bounded.
constexpr uint64_t kMostFiles = uint64_t{1} << 16;
// Values of a conversation, as of a client's body.
constexpr size_t kMostValues = size_t{1} << 18;

bool AreDigits(std::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == kDigits && std::ranges::all_of(text, is_digit);
}

// A file's name as ours: an owner's digits and "-" or none, an id, the ending, and what a process
// that ended while it wrote may have left behind that.
bool IsOurs(std::string_view name) {
  if (name.size() > kDigits && AreDigits(name.substr(0, kDigits)) && name[kDigits] == '-') {
    name.remove_prefix(kDigits + 1);
  }
  if (!name.starts_with(kIdBegin)) return false;
  name.remove_prefix(kIdBegin.size());
  if (!AreDigits(name.substr(0, kDigits))) return false;
  name.remove_prefix(kDigits);
  if (!name.starts_with(kAnswerEnding)) return false;
  name.remove_prefix(kAnswerEnding.size());
  return name.empty() || (name.starts_with('.') && name.ends_with(".partial"));
}

struct StoredFile {
  fs::path path;
  std::string owner;
  uint64_t bytes = 0;
  fs::file_time_type made;
};

// The oldest first. Files that a process which ended was writing count, too.
std::vector<StoredFile> FindAnswers(const std::string& folder) {
  std::vector<StoredFile> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!IsOurs(name)) continue;
    std::error_code gone;
    const uint64_t bytes = at->file_size(gone);
    const fs::file_time_type made = gone ? fs::file_time_type{} : at->last_write_time(gone);
    if (gone) continue;
    std::string owner = name.starts_with(kIdBegin) ? "" : name.substr(0, kDigits);
    files.push_back({.path = at->path(), .owner = std::move(owner), .bytes = bytes, .made = made});
  }
  std::ranges::sort(files, {}, &StoredFile::made);
  return files;
}

void Remove(const fs::path& path) {
  std::error_code gone;
  fs::remove(path, gone);
}

std::string ShownId(std::string_view id) { return Printable(id, 64); }

}  // namespace

Result<std::unique_ptr<ResponseStore>> ResponseStore::Open(ResponseStoreOptions options) {
  const std::string& folder = options.folder;
  if (const std::error_code error = MakePrivateFolder(folder)) {
    return Fail(Errc::kIo, "--response-store {}: cannot make the folder: {}",
                Printable(folder, 400), error.message());
  }
  if (IsOpenToOthers(folder)) {
    return Fail(Errc::kUsage,
                "--response-store {}: other users of this machine can look into the folder, which "
                "gets conversations; 'chmod 700' it",
                Printable(folder, 400));
  }
  return std::unique_ptr<ResponseStore>(new ResponseStore(std::move(options)));
}

std::string ResponseStore::OwnerOf(std::string_view key) {
  if (key.empty()) return "";
  Fnv1a hash;
  hash.Add("owner of a response:");
  hash.Add(key);
  return Format("{:016x}", hash.value());
}

bool ResponseStore::IsOwner(std::string_view text) { return text.empty() || AreDigits(text); }

// An id that is not of our form names no file, so no text of a client's reaches the file system.
std::optional<std::string> ResponseStore::PathOf(std::string_view id,
                                                 const std::string& owner) const {
  if (!id.starts_with(kIdBegin) || !AreDigits(id.substr(kIdBegin.size()))) return std::nullopt;
  return Format("{}/{}{}{}{}", options_.folder, owner, owner.empty() ? "" : "-", id, kAnswerEnding);
}

bool ResponseStore::IsTooOld(fs::file_time_type made) const {
  const std::chrono::duration<double> age = fs::file_time_type::clock::now() - made;
  return options_.most_days > 0.0 &&
         age > std::chrono::duration<double>(std::chrono::days(1)) * options_.most_days;
}

bool ResponseStore::Save(const StoredAnswer& answer, std::string_view items,
                         const std::string& owner) {
  const std::optional<std::string> path = PathOf(answer.id, owner);
  CHECK(path && items.ends_with(']') && answer.items.starts_with('['));
  // Two arrays become one.
  std::string_view more = answer.items;
  more.remove_prefix(1);
  const bool needs_comma = items != "[]" && more != "]";
  items.remove_suffix(1);
  std::string content(kFirstLine);
  content.reserve(answer.reply.size() + items.size() + more.size() + kFirstLine.size() + 4);
  content.append(answer.reply).append("\n");
  content.append(items).append(needs_comma ? "," : "").append(more).append("\n");
  // More than fits would be the first to be deleted.
  const bool fits = content.size() <= std::min<uint64_t>(kMostFile, options_.most_bytes);
  if (!fits) errno = EFBIG;
  const bool is_saved = fits && WriteOwnFile(*path, content);
  if (!is_saved && !has_failed_.exchange(true)) {
    LogWarning("answers are not stored in {} for now: {}", options_.folder, std::strerror(errno));
  }
  if (!is_saved) return false;
  has_failed_ = false;
  MakeRoom(content.size());
  return true;
}

uint64_t ResponseStore::least_counted() const { return options_.most_bytes / kMostFiles; }

// Reads the folder when it may hold too much, and once a minute: that takes a while where there are
// many files. One thread reads; answers that others save meanwhile wait for the next time.
void ResponseStore::MakeRoom(uint64_t saved) {
  const std::unique_lock looks(looking_, std::try_to_lock);
  bytes_since_ += std::max(saved, least_counted());
  if (!looks) return;
  const double now = options_.clock();
  const bool is_full = bytes_seen_ + bytes_since_ > options_.most_bytes;
  if (looked_ && !is_full && now - *looked_ < kLookSeconds) return;
  looked_ = now;
  bytes_since_ = 0;
  bytes_seen_ = DeleteOldest();
}

// Deletes what is too old, and the oldest files where there are too many bytes; a little more, so
// that not every answer has the folder looked at. Returns the bytes that are left.
uint64_t ResponseStore::DeleteOldest() const {
  std::vector<StoredFile> files = FindAnswers(options_.folder);
  std::map<std::string, uint64_t> bytes_of;
  uint64_t bytes = 0;
  std::erase_if(files, [&](const StoredFile& file) {
    if (!IsTooOld(file.made)) return false;
    Remove(file.path);
    return true;
  });
  for (StoredFile& file : files) {
    file.bytes = std::max(file.bytes, least_counted());
    bytes += file.bytes;
    bytes_of[file.owner] += file.bytes;
  }
  if (bytes <= options_.most_bytes) return bytes;
  while (bytes > options_.most_bytes - options_.most_bytes / kSpare) {
    const auto most = std::ranges::max_element(
        bytes_of, {}, [](const auto& of_owner) { return of_owner.second; });
    const auto oldest = std::ranges::find(files, most->first, &StoredFile::owner);
    Remove(oldest->path);
    bytes -= oldest->bytes;
    most->second -= oldest->bytes;
    files.erase(oldest);
  }
  return bytes;
}

// The two lines behind the first one.
std::optional<std::string> ResponseStore::Read(std::string_view id,
                                               const std::string& owner) const {
  const std::optional<std::string> path = PathOf(id, owner);
  std::error_code gone;
  if (!path || IsTooOld(fs::last_write_time(*path, gone)) || gone) return std::nullopt;
  std::string content = ReadOwnFile(*path, kMostFile);
  if (!content.starts_with(kFirstLine)) return std::nullopt;
  content.erase(0, kFirstLine.size());
  const bool is_whole = content.ends_with('\n') && std::ranges::count(content, '\n') == 2;
  return is_whole ? std::optional(std::move(content)) : std::nullopt;
}

std::optional<std::string> ResponseStore::Find(std::string_view id,
                                               const std::string& owner) const {
  std::optional<std::string> lines = Read(id, owner);
  if (lines) lines->resize(lines->find('\n'));
  return lines;
}

ApiResult<Json> ResponseStore::Recall(const std::string& id, const std::string& owner,
                                      const WorkLimit& limit) const {
  if (const std::optional<std::string> lines = Read(id, owner)) {
    Result<Json> items =
        Json::Parse(std::string_view(*lines).substr(lines->find('\n') + 1), kMostValues, limit);
    if (items) return *std::move(items);
    if (!limit.status()) return std::unexpected(ToApiError(items.error()));
  }
  ApiError error =
      BadRequest("previous_response_id",
                 Format("there is no stored response \"{}\": it is too old, has been deleted, or "
                        "was never stored here; send the whole conversation as \"input\"",
                        ShownId(id)))
          .error();
  error.code = "previous_response_not_found";
  return std::unexpected(std::move(error));
}

bool ResponseStore::Delete(std::string_view id, const std::string& owner) {
  if (!Read(id, owner)) return false;
  std::error_code gone;
  return fs::remove(*PathOf(id, owner), gone);
}

RecallItems RecallFrom(const ResponseStore* store, const std::string& owner,
                       const WorkLimit& limit) {
  if (store == nullptr) return {};
  return [store, &owner, &limit](const std::string& id) { return store->Recall(id, owner, limit); };
}

HttpReply AnswerStored(ResponseStore* store, const HttpRequest& request, std::string_view id) {
  const std::string& owner = request.record->owner;
  const auto refuse = [&](int status, std::string message, std::string param) {
    return ErrorReply(ApiKind::kResponses,
                      {.status = status,
                       .type = "invalid_request_error",
                       .message = std::move(message),
                       .param = std::move(param)},
                      *request.record);
  };
  if (store == nullptr) {
    return refuse(404, "no responses are stored: this server was started without --response-store",
                  "response_id");
  }
  if (request.query("stream").value_or("false") == "true") {
    return refuse(400,
                  "\"stream\" is not offered for a stored response, which is whole; leave it "
                  "out",
                  "stream");
  }
  const bool deletes = request.method == "DELETE";
  std::optional<std::string> found;
  if (!deletes) {
    found = store->Find(id, owner);
  } else if (store->Delete(id, owner)) {
    Json json = Json::Object();
    json.Set("id", id).Set("object", "response").Set("deleted", true);
    found = json.Dump();
  }
  if (found) return {.body = *std::move(found)};
  return refuse(
      404,
      Format("there is no stored response \"{}\": it is too old, has been deleted, or was "
             "never stored here",
             ShownId(id)),
      "response_id");
}

}  // namespace moestro
