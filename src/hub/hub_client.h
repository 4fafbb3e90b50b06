// SPDX-License-Identifier: MIT
// Client of a hub: lists a repository, finds the address of a file's bytes, and reads some of them.
// Each call retries where that helps, waits no longer than its limit, and ends early when a stop is
// requested.
//
// Addresses are followed by this code and not by libcurl: the token goes to the endpoint alone, and
// no redirect leads from https to http.
//
// Thread rule: one thread uses a client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "hub/choose_file.h"
#include "hub/hub_settings.h"
#include "hub/web_request.h"
#include "hub/web_transfers.h"

namespace moestro {

struct HubListing {
  std::string commit;          // 40 hexadecimal digits
  std::vector<HubFile> files;  // paths are safe; in the hub's order
};

// Present place of a file's bytes. Addresses expire.
struct FileAddress {
  std::string address;      // the last one, behind the hub's own redirects
  std::string commit = {};  // commit that the hub named; empty: none
  std::string etag = {};    // ETag of the content by the hub, without quotes; empty: none
  uint64_t size = 0;        // bytes
};

class HubClient {
 public:
  // `stop` must outlive this.
  static Result<HubClient> Create(HubSettings settings, StopSignal& stop, WebOptions options = {},
                                  RetryPolicy retry = {});
  HubClient(HubClient&&) noexcept;
  ~HubClient();

  const HubSettings& settings() const { return settings_; }
  const WebOptions& web_options() const { return web_options_; }
  const RetryPolicy& retry() const { return retry_; }
  StopSignal& stop() const { return *stop_; }

  // kInvalidRequest: no such repository or revision, or a token is needed, with the hub's own
  // words. kIo: no network, a server that fails or does not speak the hub's language. kInterrupted.
  Result<HubListing> Files(const std::string& repo, const std::string& revision);

  // The address of a file of a repository, for Find() and Read().
  std::string AddressOf(const std::string& repo, const std::string& revision,
                        const std::string& path) const;
  // Follows the address anew. Errors as Files(); also if the server does not say the size.
  Result<FileAddress> Find(const std::string& address);
  // Bytes [offset, offset + length) of the file at the address, fewer where the file ends. Keeps
  // the resolved address, and resolves it again when it expires. REQUIRES: length <= 64 MiB. kIo:
  // also a server that cannot give a part of a file.
  Result<std::string> Read(const std::string& address, uint64_t offset, uint64_t length);

 private:
  HubClient(HubSettings settings, StopSignal& stop, WebOptions options, RetryPolicy retry,
            std::unique_ptr<WebTransfers> transfers);

  struct Answer {
    WebHead head = {};
    std::string body = {};
    std::string address;  // address that answered
    WebFault fault = WebFault::kNone;
    std::string why = {};  // of the fault
    std::optional<double> retry_after = {};
  };
  struct Question {
    std::string address;
    bool is_head = false;
    bool stays_on_server = false;  // a redirect to another one is the answer
    std::optional<ByteRange> range = {};
    size_t most_bytes = 0;  // a longer body is an error
    std::string what = {};  // for messages: "owner/repo"
  };
  Result<Answer> Ask(const Question& question);         // with tries, redirects, statuses
  Result<Answer> FollowOnce(const Question& question);  // one try along all redirects
  Result<Answer> AskOnce(const Question& question, const std::string& address);
  Status CheckMayAsk(const std::string& address) const;
  Status Wait(double seconds) const;
  Error Refused(const Question& question, const Answer& answer) const;
  // "; nearest: owner/repo" by the owner's other repositories and the hub's search; empty: none.
  std::string NearestText(const std::string& repo);

  HubSettings settings_;
  StopSignal* stop_;
  WebOptions web_options_;
  RetryPolicy retry_;
  bool is_unknown_ = false;   // the last refusal was for an unknown repository
  bool has_reached_ = false;  // some server has answered, so the network works
  std::unique_ptr<WebTransfers> transfers_;
  std::string read_address_;  // the last address given to Read(), and the place it led to
  std::string read_place_;
};

}  // namespace moestro
