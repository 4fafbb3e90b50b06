// SPDX-License-Identifier: MIT
// Fetches one file of a repository into the cache: several parts at once, each written at its place
// and hashed as it comes. The file gets its name only when the whole content is right.
//
// Thread rule: one thread, which holds the content's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/input_file.h"
#include "base/result.h"
#include "hub/content_hash.h"
#include "hub/fetch_plan.h"
#include "hub/hub_client.h"
#include "hub/model_name.h"
#include "hub/shared_folder.h"
#include "hub/web_request.h"
#include "hub/web_transfers.h"

namespace moestro {

// The bytes of a file that is not whole yet and the state file beside them. The state never lists
// bytes that are not on the disk. Move-only; its owner holds the content's lock.

class PartFile {
 public:
  // Opens the existing part if it is of the same content, else begins a new one. kIo: the disk or
  // the folder does not allow it, or the process's limit on the size of files is lower.
  static Result<PartFile> Open(const HubLayout& layout, FetchState wanted);

  // State of the part when it was opened.
  const FetchState& state() const { return state_; }

  // kIo: the disk is full or failed.
  Status Write(std::span<const std::byte> bytes, uint64_t at);
  Status Read(std::span<std::byte> bytes, uint64_t at) const;
  // Writes the state file, after the bytes have reached the disk. kIo.
  Status Save(const RangeSet& done, const std::string& content_etag);
  // Discards all bytes. kIo.
  Status Clear();
  // Gives the whole file its name and removes the state. kIo.
  Status Publish();
  // Removes both files.
  void Delete();

 private:
  PartFile(UniqueFd fd, FetchState state, SharedFolder folder);
  std::unexpected<Error> Failed(const char* what) const;

  UniqueFd fd_;
  FetchState state_;
  SharedFolder folder_;
  std::string part_;  // names in the folder
  std::string state_name_;
};

struct FetchOptions {
  FetchPlan::Options ranges = {};
  double save_seconds = 5.0;                 // at most between two writings of the state
  uint64_t save_bytes = uint64_t{32} << 20;  // received bytes between two writings of the state
};

struct FetchProgress {
  uint64_t there = 0;    // bytes
  uint64_t checked = 0;  // bytes from the beginning that have been hashed
};

class FileFetch {
 public:
  using Watcher = std::function<void(const FetchProgress&)>;

  // `client` and `layout` must outlive this. wanted: without ranges and the content's ETag.
  FileFetch(HubClient& client, const HubLayout& layout, FetchState wanted, FetchOptions options,
            Watcher watcher);

  // Afterwards the cache has the blob, or a part of it and its state. kInterrupted: a stop was
  // requested. kInvalidFile: the content's hash is not the hub's; the content is deleted. kIo,
  // kInvalidRequest: as HubClient, a full disk, a file of another size.
  Status Run();

 private:
  // A request under way.
  struct Running {
    uint64_t number = 0;  // the plan's
    std::optional<HeadVerdict> verdict = {};
    uint64_t bytes = 0;  // bytes received
  };

  Status Begin();
  Status Turn();     // one round: request, receive, hash, save
  Status Resolve();  // finds the address anew
  Status AskForMore();
  Status OnEnd(const WebEnd& end);
  Status OnFailure(const WebEnd& end, const std::string& why);
  bool MayFollow(const std::string& redirect) const;
  void Take(uint64_t number, std::span<const std::byte> bytes);
  Status StartAgain();
  Status HashSome(uint64_t most_bytes);
  Status Save();
  Status Finish();
  bool is_behind() const;  // some received bytes have not been hashed
  std::unexpected<Error> OtherSize(const std::string& said) const;

  HubClient& client_;
  const HubLayout& layout_;
  FetchState wanted_;
  FetchOptions options_;
  Watcher watcher_;

  std::unique_ptr<WebTransfers> transfers_;
  std::optional<PartFile> part_;
  std::optional<FetchPlan> plan_;
  std::optional<ContentHash> hash_;
  std::optional<Retries> retries_;
  std::map<uint64_t, Running> running_;  // by the number of the transfer
  std::string address_;                  // empty: to be found
  Status fault_ = {};                    // in a receiver
  bool must_start_again_ = false;
  uint64_t checked_ = 0;
  uint64_t arrived_ = 0;     // bytes since the last failure
  uint64_t unsaved_ = 0;     // bytes since the state was written
  double saved_at_ = 0.0;    // seconds of the steady clock
  int redirects_ = 0;        // since bytes came
  double not_before_ = 0.0;  // no request until then
};

}  // namespace moestro
