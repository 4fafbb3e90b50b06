// SPDX-License-Identifier: MIT
// Chooses the next request for a file and judges heads of replies. Pure: no clock, no connection.
//
// The first request goes alone. Only after a server has sent a part of the wanted content are
// several requests made at once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/web_request.h"

namespace moestro {

// The bytes of a file that are present, as ranges. Pure.

class RangeSet {
 public:
  // Overlaps and neighbours become one. An empty range adds nothing.
  void Add(ByteRange range);
  void Clear() { ranges_.clear(); }

  // The first missing byte at or above `from`.
  uint64_t FirstMissing(uint64_t from = 0) const;
  // Missing bytes from FirstMissing(from) on, up to `end`; nullopt: none is missing.
  std::optional<ByteRange> FirstGap(uint64_t from, uint64_t end) const;
  uint64_t bytes() const;
  // The ranges, sorted, with gaps between them.
  const std::vector<ByteRange>& ranges() const { return ranges_; }

  bool operator==(const RangeSet&) const = default;

 private:
  std::vector<ByteRange> ranges_;
};

// State of an incomplete file, as the text of its state file (docs/pull.md). Pure.

struct FetchState {
  std::string repo;
  std::string commit;
  std::string file;               // path in the repository
  std::string etag;               // by which the hub names the content: the blob's name
  uint64_t size = 0;              // bytes of the whole file
  std::string content_etag = {};  // ETag of the server that sent the bytes, as it was written
  RangeSet done = {};

  bool operator==(const FetchState&) const = default;
};

inline constexpr size_t kMostStateBytes = size_t{1} << 20;

// The state as one line of JSON.
std::string StateText(const FetchState& state);
// kInvalidFile: not such a text, or ranges that do not lie in the file one behind another.
Result<FetchState> ParseState(std::string_view text);
// Whether the bytes of `state` are part of the wanted content: names and sizes of the content
// agree.
bool MayGoOn(const FetchState& state, const FetchState& wanted);

enum class HeadVerdict : uint8_t {
  kTake,          // the requested bytes follow
  kTakeWhole,     // the whole file follows from its beginning: this server gives no parts
  kStartAgain,    // the bytes on disk belong to another content and are discarded
  kResolveAgain,  // the address is no longer good
  kTryAgain,      // the server has no time
  kOtherSize,     // the file's size differs from the hub's
  kRefused,       // the server refuses, and would again
};

class FetchPlan {
 public:
  struct Options {
    uint64_t range_bytes = uint64_t{32} << 20;  // of one request
    size_t most_requests = 6;                   // at once
    int most_restarts = 3;                      // after kStartAgain
  };
  // `content_etag`: the ETag of the server that sent the bytes in `done`.
  FetchPlan(uint64_t size, RangeSet done, std::string content_etag, Options options);

  // The request to make now: for the lowest bytes that are neither present nor requested. `number`
  // identifies it in later calls. nullopt: no request at the moment.
  struct Request {
    uint64_t number = 0;
    ByteRange range;
    std::string if_range = {};  // empty: none
  };
  std::optional<Request> Next();

  // Judges the head of the reply to a request that is under way. After kTake and kTakeWhole the
  // bytes go to position() on. kStartAgain discards all bytes and requests of the plan: its caller
  // cancels the transfers. The other verdicts leave the request to Ended().
  HeadVerdict OnHead(uint64_t number, const WebHead& head);
  // Position of a request's next byte.
  uint64_t position(uint64_t number) const { return asked_.at(number).at; }
  // Bytes that the request's reply may still bring.
  uint64_t room(uint64_t number) const;
  // Bytes of a request have been written. REQUIRES: bytes <= room(number).
  void Arrived(uint64_t number, uint64_t bytes);
  // Ends a request, complete or not; its missing bytes are requested again.
  void Ended(uint64_t number);

  bool is_complete() const { return done_.bytes() == size_; }
  bool has_failed() const { return restarts_ > options_.most_restarts; }
  const RangeSet& done() const { return done_; }
  const std::string& content_etag() const { return content_etag_; }

 private:
  struct Asked {
    ByteRange range;
    uint64_t at = 0;
    bool is_taken = false;  // its head was kTake or kTakeWhole
  };
  HeadVerdict StartAgain();

  uint64_t size_;
  RangeSet done_;
  std::string content_etag_;
  Options options_;
  std::map<uint64_t, Asked> asked_;
  uint64_t next_number_ = 1;
  bool is_proven_ = false;  // the server has sent a part of the content
  int restarts_ = 0;
};

}  // namespace moestro
