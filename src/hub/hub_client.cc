// SPDX-License-Identifier: MIT
#include "hub/hub_client.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "hub/hub_reply.h"
#include "hub/web_request.h"

namespace moestro {
namespace {

constexpr int kMostRedirects = 8;
constexpr double kLookSeconds = 0.1;  // at most, between two checks of the stop signal
constexpr size_t kMostErrorBytes = 4096;
constexpr size_t kMostReadBytes = 64 * kMiB;

// Percent-encodes by RFC 3986; '/' stays if `keeps_slash`.
std::string PercentEncoded(std::string_view text, bool keeps_slash) {
  std::string out;
  for (const char c : text) {
    const bool stays = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string_view("-._~").contains(c) || (c == '/' && keeps_slash);
    if (stays)
      out += c;
    else
      out += Format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string HostText(std::string_view address) {
  return Printable(OriginOf(address).value_or("the server"));
}

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Whether the reply is that for an unknown repository, which the hub also gives for private ones.
bool IsUnknown(const WebHead& head) {
  const std::string* const code = head.Find("x-error-code");
  return code != nullptr ? *code == "RepoNotFound" : head.status == 404;
}

Error Interrupted() { return {Errc::kInterrupted, "stopped"}; }

}  // namespace

Result<HubClient> HubClient::Create(HubSettings settings, StopSignal& stop, WebOptions options,
                                    RetryPolicy retry) {
  TRY(auto transfers, WebTransfers::Create(options));
  return HubClient(std::move(settings), stop, std::move(options), retry, std::move(transfers));
}

HubClient::HubClient(HubSettings settings, StopSignal& stop, WebOptions options, RetryPolicy retry,
                     std::unique_ptr<WebTransfers> transfers)
    : settings_(std::move(settings)),
      stop_(&stop),
      web_options_(std::move(options)),
      retry_(retry),
      transfers_(std::move(transfers)) {}
HubClient::HubClient(HubClient&&) noexcept = default;
HubClient::~HubClient() = default;

Status HubClient::Wait(double seconds) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (stop_->is_requested()) return std::unexpected(Interrupted());
    const std::chrono::duration<double> left = end - std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::min(left, std::chrono::duration<double>(kLookSeconds)));
  }
  return {};
}

Status HubClient::CheckMayAsk(const std::string& address) const {
  if (settings_.is_offline) {
    return Fail(Errc::kIo, "{} may not be asked: offline is wanted (--offline or HF_HUB_OFFLINE)",
                HostText(address));
  }
  if (!OriginOf(address)) {
    return Fail(Errc::kIo, "'{}' is no address to ask", Printable(address));
  }
  return {};
}

// Makes one request to one server.
Result<HubClient::Answer> HubClient::AskOnce(const Question& question, const std::string& address) {
  TRY_STATUS(CheckMayAsk(address));
  Answer answer{.address = address};
  bool is_too_long = false;
  const auto take = [&](std::span<const std::byte> bytes) {
    const int status = answer.head.status;
    const bool is_wanted = status == 200 || status == 206;
    if (!is_wanted) {  // a short text of the server about the fault is kept
      const size_t room = kMostErrorBytes - std::min(kMostErrorBytes, answer.body.size());
      bytes = bytes.first(std::min(bytes.size(), room));
    } else if (bytes.size() > question.most_bytes - answer.body.size()) {
      is_too_long = true;
      return false;
    }
    answer.body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return true;
  };
  const auto see_head = [&](const WebHead& head) {
    answer.head = head;
    // A server that sends a whole large file instead of a part is cut off.
    const bool is_whole = question.range && head.status == 200;
    return !(is_whole && question.most_bytes < SizeHeader(head, "content-length").value_or(0));
  };
  TRY(const uint64_t id,
      transfers_->Start({.address = address,
                         .is_head = question.is_head,
                         .range = question.range,
                         .token = MayHaveToken(settings_, address) ? settings_.token : ""},
                        {.on_head = see_head, .on_body = take}));
  while (true) {
    if (stop_->is_requested()) {
      transfers_->Cancel(id);
      return std::unexpected(Interrupted());
    }
    for (const WebEnd& end : transfers_->Wait(kLookSeconds)) {
      if (end.id != id) continue;
      answer.head = end.head;
      answer.fault = end.fault;
      answer.why = end.why;
      answer.retry_after = end.retry_after;
      if (is_too_long) {
        return Fail(Errc::kIo, "{} sends more than {} for {}", HostText(address),
                    FormatBytes(question.most_bytes), question.what);
      }
      return answer;
    }
  }
}

Result<HubClient::Answer> HubClient::FollowOnce(const Question& question) {
  std::string address = question.address;
  std::string commit;
  std::string etag;
  std::string size;
  for (int hop = 0; hop <= kMostRedirects; ++hop) {
    TRY(Answer answer, AskOnce(question, address));
    // Only the first server that names the content is the hub; others behind it name their copies.
    const auto keep = [&](const char* name, std::string& value) {
      const std::string* const found = answer.head.Find(name);
      if (found != nullptr && value.empty()) value = *found;
    };
    keep("x-repo-commit", commit);
    keep("x-linked-etag", etag);
    keep("x-linked-size", size);
    const bool is_end = !IsRedirect(answer.head.status) || answer.head.redirect.empty();
    const std::string next = answer.head.redirect;
    if (!is_end && !IsPlainHttp(address) && IsPlainHttp(next)) {
      return Fail(Errc::kIo, "{} leads to {}, which is not encrypted; not followed",
                  HostText(address), HostText(next));
    }
    const bool leaves = !is_end && OriginOf(next) != OriginOf(address);
    if (is_end || (leaves && question.stays_on_server)) {
      if (!commit.empty()) answer.head.headers["x-repo-commit"] = commit;
      if (!etag.empty()) answer.head.headers["x-linked-etag"] = etag;
      if (!size.empty()) answer.head.headers["x-linked-size"] = size;
      if (leaves) answer.address = next;
      return answer;
    }
    address = next;
  }
  return Fail(Errc::kIo, "{} leads from address to address, more than {} times",
              HostText(question.address), kMostRedirects);
}

Result<HubClient::Answer> HubClient::Ask(const Question& question) {
  Retries retries(retry_);
  while (true) {
    TRY(Answer answer, FollowOnce(question));
    const int status = answer.head.status;
    const bool is_ok = answer.fault == WebFault::kNone || answer.fault == WebFault::kStopped;
    const bool leads_away = question.stays_on_server && IsRedirect(status);
    if (is_ok && (status == 200 || status == 206 || leads_away)) return answer;
    if (status > 0) has_reached_ = true;
    // Without a network a retry is useless.
    const bool may_pass = is_ok ? IsPassing(status)
                                : answer.fault == WebFault::kCut ||
                                      (answer.fault == WebFault::kNoServer && has_reached_);
    const auto wait = may_pass ? retries.AfterFailure(answer.retry_after) : std::nullopt;
    if (!wait) {
      is_unknown_ = is_ok && IsUnknown(answer.head);
      return std::unexpected(Refused(question, answer));
    }
    TRY_STATUS(Wait(*wait));
  }
}

Error HubClient::Refused(const Question& question, const Answer& answer) const {
  const std::string host = HostText(answer.address);
  const std::string what = Printable(question.what);
  const auto io = [](std::string text) { return Error{Errc::kIo, std::move(text)}; };
  const auto request = [](std::string text) {
    return Error{Errc::kInvalidRequest, std::move(text)};
  };
  if (answer.fault == WebFault::kNoServer) {
    return io(Format("cannot reach {}: {}; is there a network? (a proxy is taken from https_proxy)",
                     host, Printable(answer.why)));
  }
  if (answer.fault == WebFault::kNotSecure) {
    return io(Format("{} is not who it says: {}", host, Printable(answer.why)));
  }
  if (answer.fault != WebFault::kNone && answer.fault != WebFault::kStopped) {
    return io(Format("the connection to {} broke for {}: {}", host, what, Printable(answer.why)));
  }
  const std::string* const code = answer.head.Find("x-error-code");
  const int status = answer.head.status;
  const char* const token = settings_.token.empty() ? "set HF_TOKEN to one that may read it"
                                                    : "the token of HF_TOKEN may not read it";
  if (code != nullptr && *code == "GatedRepo") {
    return request(Format("{} is gated: accept its terms at {}, then {}", what, host, token));
  }
  if (code != nullptr && *code == "RevisionNotFound") {
    return request(Format("{} has no such revision; leave out @REVISION for the newest", what));
  }
  if (code != nullptr && *code == "EntryNotFound") {
    return request(Format("{} is not in the repository", what));
  }
  if (IsUnknown(answer.head)) {
    return request(Format("{} has no {}{}", host, what,
                          settings_.token.empty() ? ", or only for those with a token (HF_TOKEN)"
                                                  : ", or the token of HF_TOKEN may not see it"));
  }
  if (status == 401 || status == 403) {
    return request(Format("{} does not let us read {} (status {}); {}", host, what, status, token));
  }
  if (status == 429) {
    return io(Format("{} has had too many requests from here (status 429); try again in {}", host,
                     answer.retry_after ? Format("{:.0f} seconds", *answer.retry_after)
                                        : std::string("some minutes")));
  }
  return io(Format("{} answers {} with status {}", host, what, status));
}

std::string HubClient::NearestText(const std::string& repo) {
  const size_t slash = repo.find('/');
  for (const std::string& query : {"author=" + PercentEncoded(repo.substr(0, slash), false),
                                   "search=" + PercentEncoded(repo.substr(slash + 1), false)}) {
    const auto answer = Ask({.address = settings_.endpoint + "/api/models?limit=200&" + query,
                             .most_bytes = kMostReplyBytes,
                             .what = "names"});
    if (!answer) return {};
    const std::string nearest = ::moestro::NearestText(repo, ParseRepoNames(answer->body));
    if (!nearest.empty()) return nearest;
  }
  return {};
}

Result<HubListing> HubClient::Files(const std::string& repo, const std::string& revision) {
  const std::string base = settings_.endpoint + "/api/models/" + PercentEncoded(repo, true);
  const std::string what =
      revision == "main" ? "repository " + repo : "repository " + repo + "@" + revision;
  auto about = Ask({.address = base + "/revision/" + PercentEncoded(revision, false),
                    .most_bytes = kMostReplyBytes,
                    .what = what});
  if (!about) {
    Error error = std::move(about).error();
    if (std::exchange(is_unknown_, false)) error.message += NearestText(repo);
    return std::unexpected(std::move(error));
  }
  HubListing listing;
  const auto told = [&](const Error& error) {
    return Error{error.code, Format("{} does not speak the hub's language for {}: {}",
                                    HostText(base), what, error.message)};
  };
  auto commit = ParseCommit(about->body);
  if (!commit) return std::unexpected(told(commit.error()));
  listing.commit = *std::move(commit);
  std::string page = base + "/tree/" + listing.commit + "?recursive=true";
  for (size_t n = 0; !page.empty(); ++n) {
    if (n == kMostPages) {
      return Fail(Errc::kIo, "{} lists more than {} pages of files for {}", HostText(base),
                  kMostPages, what);
    }
    TRY(const Answer answer, Ask({.address = page, .most_bytes = kMostReplyBytes, .what = what}));
    auto files = ParseTree(answer.body);
    if (!files) return std::unexpected(told(files.error()));
    std::ranges::move(*files, std::back_inserter(listing.files));
    const std::string* const link = answer.head.Find("link");
    page = link != nullptr ? NextPage(*link) : "";
    if (!page.empty() && OriginOf(page) != OriginOf(settings_.endpoint)) {
      return Fail(Errc::kIo, "{} leads to another server for its list of files: {}", HostText(base),
                  HostText(page));
    }
  }
  return listing;
}

std::string HubClient::AddressOf(const std::string& repo, const std::string& revision,
                                 const std::string& path) const {
  return settings_.endpoint + "/" + PercentEncoded(repo, true) + "/resolve/" +
         PercentEncoded(revision, false) + "/" + PercentEncoded(path, true);
}

Result<FileAddress> HubClient::Find(const std::string& address) {
  const std::string what = address.substr(address.rfind('/') + 1);
  // Addresses of content servers are often signed for GET alone: the hub's words are enough.
  TRY(Answer answer,
      Ask({.address = address, .is_head = true, .stays_on_server = true, .what = what}));
  const auto size_of = [](const Answer& from) {
    const auto linked = SizeHeader(from.head, "x-linked-size");
    if (linked || IsRedirect(from.head.status)) return linked;
    const std::string* const range = from.head.Find("content-range");
    const auto parsed = range != nullptr ? ParseContentRange(*range) : std::nullopt;
    return parsed ? std::optional(parsed->whole) : SizeHeader(from.head, "content-length");
  };
  auto size = size_of(answer);
  if (!size) {
    TRY(answer, Ask({.address = address, .range = ByteRange{0, 1}, .most_bytes = 1, .what = what}));
    size = size_of(answer);
  }
  if (!size) {
    return Fail(Errc::kIo, "{} does not say how large {} is", HostText(answer.address),
                Printable(what));
  }
  FileAddress place{.address = answer.address, .size = *size};
  if (const std::string* const commit = answer.head.Find("x-repo-commit")) place.commit = *commit;
  const std::string* etag = answer.head.Find("x-linked-etag");
  if (etag == nullptr && !IsRedirect(answer.head.status)) etag = answer.head.Find("etag");
  if (etag != nullptr) place.etag = PlainEtag(*etag);
  return place;
}

Result<std::string> HubClient::Read(const std::string& address, uint64_t offset, uint64_t length) {
  if (length == 0) return std::string();
  const std::string what = address.substr(address.rfind('/') + 1);
  if (length > kMostReadBytes || offset > INT64_MAX - length) {
    return Fail(Errc::kInvalidRequest, "a part of {} of {} cannot be asked for", length,
                Printable(what));
  }
  Question question{.address = address,
                    .range = ByteRange{.begin = offset, .end = offset + length},
                    .most_bytes = length,
                    .what = what};
  std::optional<Answer> answer;
  if (read_address_ == address) {  // the resolved address may still be valid
    question.address = read_place_;
    TRY(Answer again, FollowOnce(question));
    if (again.head.status == 206 && again.fault == WebFault::kNone) answer = std::move(again);
  }
  if (!answer) {
    question.address = address;
    TRY(answer, Ask(question));
  }
  const std::string* const said = answer->head.Find("content-range");
  const auto range = said != nullptr ? ParseContentRange(*said) : std::nullopt;
  if (answer->head.status != 206 || !range || range->range.begin != offset ||
      range->range.size() != answer->body.size()) {
    return Fail(Errc::kIo, "{} cannot give a part of {}", HostText(answer->address),
                Printable(what));
  }
  read_address_ = address;
  read_place_ = answer->address;
  return std::move(answer->body);
}

}  // namespace moestro
