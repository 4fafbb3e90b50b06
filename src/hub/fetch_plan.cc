// SPDX-License-Identifier: MIT
#include "hub/fetch_plan.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "hub/hub_reply.h"
#include "hub/retry.h"

namespace moestro {

FetchPlan::FetchPlan(uint64_t size, RangeSet done, std::string content_etag, Options options)
    : size_(size),
      done_(std::move(done)),
      content_etag_(std::move(content_etag)),
      options_(options) {}

std::optional<FetchPlan::Request> FetchPlan::Next() {
  if (asked_.size() >= (is_proven_ ? options_.most_requests : 1)) return std::nullopt;
  RangeSet busy = done_;
  for (const auto& [number, asked] : asked_) busy.Add(asked.range);
  const auto gap = busy.FirstGap(0, size_);
  if (!gap) return std::nullopt;
  const ByteRange range{.begin = gap->begin,
                        .end = gap->begin + std::min(gap->size(), options_.range_bytes)};
  const uint64_t number = next_number_++;
  asked_[number] = {.range = range, .at = range.begin};
  return Request{.number = number, .range = range, .if_range = content_etag_};
}

HeadVerdict FetchPlan::StartAgain() {
  ++restarts_;
  done_.Clear();
  asked_.clear();
  content_etag_.clear();
  is_proven_ = false;
  return HeadVerdict::kStartAgain;
}

HeadVerdict FetchPlan::OnHead(uint64_t number, const WebHead& head) {
  Asked& asked = asked_.at(number);
  const std::string etag = StrongEtag(head);
  if (head.status == 206) {
    const std::string* const text = head.Find("content-range");
    const auto range = text != nullptr ? ParseContentRange(*text) : std::nullopt;
    if (range && range->whole != size_) return HeadVerdict::kOtherSize;
    if (!range || range->range.begin != asked.range.begin || range->range.end > asked.range.end) {
      return HeadVerdict::kTryAgain;
    }
    // This server has ignored If-Range.
    if (!content_etag_.empty() && !etag.empty() && etag != content_etag_) return StartAgain();
    if (content_etag_.empty()) content_etag_ = etag;
    is_proven_ = true;
    asked.is_taken = true;
    return HeadVerdict::kTake;
  }
  if (head.status == 200) {
    const bool is_alone = asked_.size() == 1 && done_.ranges().empty();
    if (!is_alone) return StartAgain();
    const auto length = SizeHeader(head, "content-length");
    if (length && *length != size_) return HeadVerdict::kOtherSize;
    content_etag_ = etag;
    asked = {.range = {.begin = 0, .end = size_}, .at = 0, .is_taken = true};
    return HeadVerdict::kTakeWhole;
  }
  if (head.status == 416) return HeadVerdict::kOtherSize;
  // Stores answer expired addresses differently, some with 403, others with 400.
  const bool is_expired = head.status == 400 || head.status == 401 || head.status == 403 ||
                          head.status == 404 || head.status == 410;
  if (is_expired || (head.status >= 300 && head.status < 400)) {
    return HeadVerdict::kResolveAgain;
  }
  return IsPassing(head.status) ? HeadVerdict::kTryAgain : HeadVerdict::kRefused;
}

uint64_t FetchPlan::room(uint64_t number) const {
  const Asked& asked = asked_.at(number);
  return asked.is_taken ? asked.range.end - asked.at : 0;
}

void FetchPlan::Arrived(uint64_t number, uint64_t bytes) {
  CHECK(bytes <= room(number));
  Asked& asked = asked_.at(number);
  done_.Add({.begin = asked.at, .end = asked.at + bytes});
  asked.at += bytes;
}

void FetchPlan::Ended(uint64_t number) { asked_.erase(number); }

}  // namespace moestro
