// SPDX-License-Identifier: MIT
#include "hub/fetch_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/result.h"
#include "hub/hub_reply.h"
#include "hub/model_name.h"
#include "hub/web_request.h"

namespace moestro {

void RangeSet::Add(ByteRange range) {
  if (range.begin >= range.end) return;
  // [first, last) are the ranges that touch the new one.
  const auto first = std::ranges::lower_bound(ranges_, range.begin, {}, &ByteRange::end);
  const auto last =
      std::ranges::upper_bound(first, ranges_.end(), range.end, {}, &ByteRange::begin);
  if (first != last) {
    range.begin = std::min(range.begin, first->begin);
    range.end = std::max(range.end, std::prev(last)->end);
  }
  ranges_.insert(ranges_.erase(first, last), range);
}

uint64_t RangeSet::FirstMissing(uint64_t from) const {
  const auto at = std::ranges::upper_bound(ranges_, from, {}, &ByteRange::end);
  return at != ranges_.end() && at->begin <= from ? at->end : from;
}

std::optional<ByteRange> RangeSet::FirstGap(uint64_t from, uint64_t end) const {
  const uint64_t begin = FirstMissing(from);
  if (begin >= end) return std::nullopt;
  const auto next = std::ranges::lower_bound(ranges_, begin, {}, &ByteRange::begin);
  return ByteRange{.begin = begin, .end = next != ranges_.end() ? std::min(next->begin, end) : end};
}

uint64_t RangeSet::bytes() const {
  uint64_t sum = 0;
  for (const ByteRange& range : ranges_) sum += range.size();
  return sum;
}

namespace {

constexpr int64_t kFormat = 1;
constexpr size_t kMostStateValues = 100'000;

std::optional<uint64_t> Bytes(const std::optional<JsonView>& value) {
  const auto integer = value ? value->integer() : std::nullopt;
  if (!integer || *integer < 0) return std::nullopt;
  return static_cast<uint64_t>(*integer);
}

}  // namespace

std::string StateText(const FetchState& state) {
  Json done = Json::Array();
  for (const ByteRange& range : state.done.ranges()) {
    Json pair = Json::Array();
    pair.Push(range.begin).Push(range.end);
    done.Push(std::move(pair));
  }
  Json object = Json::Object();
  object.Set("format", kFormat)
      .Set("repo", state.repo)
      .Set("commit", state.commit)
      .Set("file", state.file)
      .Set("etag", state.etag)
      .Set("size", state.size)
      .Set("content_etag", state.content_etag)
      .Set("done", std::move(done));
  return object.Dump() + "\n";
}

Result<FetchState> ParseState(std::string_view text) {
  const auto bad = [](const char* what) {
    return Fail(Errc::kInvalidFile, "the state of a download has {}", what);
  };
  if (text.size() > kMostStateBytes) return bad("too many bytes");
  const auto json = Json::Parse(text, kMostStateValues);
  if (!json) return bad("no JSON");
  const auto word = [&](const char* key) {
    const auto found = json->Find(key);
    return found ? found->text().value_or("") : std::string();
  };
  const auto format = json->Find("format");
  if (!format || format->integer() != kFormat) return bad("another format");
  FetchState state{.repo = word("repo"),
                   .commit = word("commit"),
                   .file = word("file"),
                   .etag = word("etag"),
                   .content_etag = word("content_etag")};
  const auto size = Bytes(json->Find("size"));
  if (!IsRepoName(state.repo) || !IsCommit(state.commit) || !IsSafePath(state.file) ||
      !IsBlobName(state.etag) || !size) {
    return bad("names that are none");
  }
  state.size = *size;
  // The ETag goes into a header of a request, so only a strong one may stay.
  if (StrongEtag({.headers = {{"etag", state.content_etag}}}).empty()) state.content_etag.clear();
  const auto done = json->Find("done");
  if (!done || done->kind() != JsonKind::kArray) return bad("no ranges");
  uint64_t after = 0;
  for (size_t i = 0; i < done->size(); ++i) {
    const auto begin = Bytes(done->At(i)->At(0));
    const auto end = Bytes(done->At(i)->At(1));
    if (!begin || !end || *begin < after || *begin >= *end || *end > state.size) {
      return bad("ranges that do not follow one another");
    }
    state.done.Add({.begin = *begin, .end = *end});
    after = *end;
  }
  return state;
}

bool MayGoOn(const FetchState& state, const FetchState& wanted) {
  return state.repo == wanted.repo && state.etag == wanted.etag && state.size == wanted.size;
}

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
