// SPDX-License-Identifier: MIT
// Answers of /v1/responses that clients get again by id, and that later requests go on from. A file
// holds an answer and the whole conversation up to it, so that an older one may be deleted.
//
// Files belong to the client whose key the request had: another key's ids are as unknown as ids
// that nobody made. Several servers may share a folder; files appear whole, and a file that is gone
// or damaged counts as absent.
//
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/api_request.h"
#include "api/reply.h"
#include "base/result.h"
#include "base/work_limit.h"
#include "serve/http_server.h"

namespace moestro {

struct ResponseStoreOptions {
  std::string folder = {};  // empty: nothing is stored
  uint64_t most_bytes = uint64_t{1} << 30;
  double most_days = 30.0;  // the age at which an answer is deleted; 0: never
  Clock clock = SteadySeconds;
};

class ResponseStore {
 public:
  // Makes the folder if it does not exist. kIo: it cannot be made or written. kUsage: other users
  // of the machine can look into it.
  static Result<std::unique_ptr<ResponseStore>> Open(ResponseStoreOptions options);

  // The name for a key's files, from which a short key could be found by trial; empty for no key.
  static std::string OwnerOf(std::string_view key);
  // Whether a text may be a result of OwnerOf().
  static bool IsOwner(std::string_view text);

  // Stores an answer behind `items`, the conversation before it (ApiRequest::items). Then deletes,
  // at least once a minute, what is too old, and where the folder holds too much, the oldest
  // answers of the client that has the most bytes. False: the file could not be written, or is
  // larger than the folder may be; the log names the reason once.
  bool Save(const StoredAnswer& answer, std::string_view items, const std::string& owner);
  // The answer's body; nullopt: this client has no such answer, or it is too old.
  std::optional<std::string> Find(std::string_view id, const std::string& owner) const;
  // The conversation up to the answer, that included. 400 as Find().
  ApiResult<Json> Recall(const std::string& id, const std::string& owner,
                         const WorkLimit& limit) const;
  // False: as Find().
  bool Delete(std::string_view id, const std::string& owner);

 private:
  explicit ResponseStore(ResponseStoreOptions options) : options_(std::move(options)) {}
  std::optional<std::string> PathOf(std::string_view id, const std::string& owner) const;
  std::optional<std::string> Read(std::string_view id, const std::string& owner) const;
  bool IsTooOld(std::filesystem::file_time_type made) const;
  void MakeRoom(uint64_t saved);
  uint64_t DeleteOldest() const;
  uint64_t least_counted() const;  // bytes that a file counts as at least

  const ResponseStoreOptions options_;
  std::atomic<bool> has_failed_ = false;   // the last time
  std::atomic<uint64_t> bytes_since_ = 0;  // saved since the folder was looked at
  std::mutex looking_;
  // Members of the thread that reads the folder.
  uint64_t bytes_seen_ = 0;
  std::optional<double> looked_;  // seconds
};

// The conversations of a client's stored answers, for ParseApiRequest(); empty where `store` is
// null. All arguments must outlive the result.
RecallItems RecallFrom(const ResponseStore* store, const std::string& owner,
                       const WorkLimit& limit);

// GET and DELETE of /v1/responses/ID. 404: there is no such answer, or `store` is null, which
// stands for a server without one.
HttpReply AnswerStored(ResponseStore* store, const HttpRequest& request, std::string_view id);

}  // namespace moestro
