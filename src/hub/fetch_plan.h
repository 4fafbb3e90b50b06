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

#include "hub/range_set.h"
#include "hub/web_head.h"

namespace moestro {

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
