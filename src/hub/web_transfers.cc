// SPDX-License-Identifier: MIT
#include "hub/web_transfers.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr long kSilentBytesPerSecond = 1000;
constexpr long kMostConnections = 16;
constexpr size_t kMostHeaders = 200;
constexpr std::string_view kHttp = "HTTP/";

WebFault FaultOf(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return WebFault::kNone;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PROXY:
      return WebFault::kNoServer;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
      return WebFault::kNotSecure;
    default:
      return WebFault::kCut;
  }
}

}  // namespace

struct WebTransfers::Transfer {
  explicit Transfer(Receiver to) : receiver(std::move(to)), handle(curl_easy_init()) {}
  ~Transfer() {
    curl_easy_cleanup(handle);
    curl_slist_free_all(lines);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  static size_t OnHeader(const char* bytes, size_t one, size_t count, void* self) {
    static_cast<Transfer*>(self)->AddHeader({bytes, one * count});
    return one * count;
  }
  static size_t OnBytes(const char* bytes, size_t one, size_t count, void* self) {
    const size_t size = one * count;
    return static_cast<Transfer*>(self)->Take({bytes, size}) ? size : CURL_WRITEFUNC_ERROR;
  }

  // Adds a line of a head. A reply may have several heads ("100 Continue", a proxy's): the last one
  // counts.
  void AddHeader(std::string_view line) {
    if (line.starts_with(kHttp)) head = {};
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || head.headers.size() >= kMostHeaders) return;
    head.headers[LowerCase(line.substr(0, colon))] = WithoutBlanks(line.substr(colon + 1));
  }

  void FinishHead() {
    if (is_head_told) return;
    is_head_told = true;
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    head.status = static_cast<int>(status);
    const char* redirect = nullptr;
    curl_easy_getinfo(handle, CURLINFO_REDIRECT_URL, &redirect);
    if (redirect != nullptr) head.redirect = redirect;
    if (receiver.on_head && head.status > 0) wants_more = receiver.on_head(head);
  }

  bool Take(std::string_view bytes) {
    FinishHead();
    if (wants_more && receiver.on_body) {
      wants_more = receiver.on_body(std::as_bytes(std::span(bytes)));
    }
    return wants_more;
  }

  Receiver receiver;
  CURL* handle;
  curl_slist* lines = nullptr;
  std::array<char, CURL_ERROR_SIZE> why = {};
  WebHead head;
  bool is_head_told = false;
  bool wants_more = true;
};

Result<std::unique_ptr<WebTransfers>> WebTransfers::Create(WebOptions options) {
  std::unique_ptr<WebTransfers> transfers(new WebTransfers(std::move(options)));
  if (transfers->multi_ == nullptr) return Fail(Errc::kIo, "libcurl cannot begin");
  return transfers;
}

WebTransfers::WebTransfers(WebOptions options)
    : options_(std::move(options)), multi_(curl_multi_init()) {
  if (multi_ == nullptr) return;
  curl_multi_setopt(static_cast<CURLM*>(multi_), CURLMOPT_MAXCONNECTS, kMostConnections);
}

WebTransfers::~WebTransfers() {
  while (!active_.empty()) Cancel(active_.begin()->first);
  if (multi_ != nullptr) curl_multi_cleanup(static_cast<CURLM*>(multi_));
}

Result<uint64_t> WebTransfers::Start(const WebRequest& request, Receiver receiver) {
  auto transfer = std::make_unique<Transfer>(std::move(receiver));
  CURL* const handle = transfer->handle;
  if (handle == nullptr) return Fail(Errc::kIo, "libcurl cannot begin a request");
  const auto add_line = [&](const std::string& line) {
    curl_slist* const longer = curl_slist_append(transfer->lines, line.c_str());
    if (longer != nullptr) transfer->lines = longer;
  };
  if (!request.token.empty()) add_line("Authorization: Bearer " + request.token);
  if (!request.if_range.empty()) add_line("If-Range: " + request.if_range);
  const auto set_up = [&](auto option, auto value) {
    return curl_easy_setopt(handle, option, value) == CURLE_OK;
  };
  // One connection for each range: HTTP/2 would send all of them over one.
  bool is_set_up =
      set_up(CURLOPT_URL, request.address.c_str()) && set_up(CURLOPT_PROTOCOLS_STR, "https,http") &&
      set_up(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L) &&
      set_up(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1}) &&
      set_up(CURLOPT_FOLLOWLOCATION, 0L) && set_up(CURLOPT_NOSIGNAL, 1L) &&
      set_up(CURLOPT_USERAGENT, options_.agent.c_str()) &&
      set_up(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_seconds * 1000.0)) &&
      set_up(CURLOPT_LOW_SPEED_LIMIT, kSilentBytesPerSecond) &&
      set_up(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(options_.silent_seconds))) &&
      set_up(CURLOPT_NOBODY, request.is_head ? 1L : 0L) &&
      set_up(CURLOPT_HTTPHEADER, transfer->lines) &&
      set_up(CURLOPT_ERRORBUFFER, transfer->why.data()) &&
      set_up(CURLOPT_HEADERFUNCTION, &Transfer::OnHeader) &&
      set_up(CURLOPT_HEADERDATA, transfer.get()) &&
      set_up(CURLOPT_WRITEFUNCTION, &Transfer::OnBytes) &&
      set_up(CURLOPT_WRITEDATA, transfer.get());
  if (request.range) {
    const std::string range = Format("{}-{}", request.range->begin, request.range->end - 1);
    is_set_up = is_set_up && set_up(CURLOPT_RANGE, range.c_str());
  }
  if (!is_set_up || curl_multi_add_handle(static_cast<CURLM*>(multi_), handle) != CURLM_OK) {
    return Fail(Errc::kIo, "no request can be made of the address '{}'",
                Printable(request.address));
  }
  const uint64_t id = next_id_++;
  active_.emplace(id, std::move(transfer));
  return id;
}

std::vector<WebEnd> WebTransfers::Wait(double seconds) {
  CURLM* const multi = static_cast<CURLM*>(multi_);
  int running = 0;
  curl_multi_perform(multi, &running);
  std::vector<WebEnd> ends;
  const auto collect = [&] {
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const auto found = std::ranges::find_if(
          active_, [&](const auto& entry) { return entry.second->handle == message->easy_handle; });
      CHECK(found != active_.end());
      Transfer& transfer = *found->second;
      const CURLcode code = message->data.result;
      transfer.FinishHead();
      curl_off_t retry_after = 0;
      curl_easy_getinfo(transfer.handle, CURLINFO_RETRY_AFTER, &retry_after);
      WebEnd end{.id = found->first,
                 .fault = transfer.wants_more ? FaultOf(code) : WebFault::kStopped,
                 .why = transfer.why[0] != '\0' ? transfer.why.data() : curl_easy_strerror(code),
                 .head = std::move(transfer.head)};
      if (retry_after > 0 || end.head.Find("retry-after") != nullptr) {
        end.retry_after = static_cast<double>(std::max<curl_off_t>(retry_after, 0));
      }
      ends.push_back(std::move(end));
    }
  };
  collect();
  if (ends.empty() && seconds > 0.0) {
    curl_multi_poll(multi, nullptr, 0, static_cast<int>(seconds * 1000.0), nullptr);
    curl_multi_perform(multi, &running);
    collect();
  }
  for (const WebEnd& end : ends) Cancel(end.id);
  return ends;
}

void WebTransfers::Cancel(uint64_t id) {
  const auto found = active_.find(id);
  if (found == active_.end()) return;
  curl_multi_remove_handle(static_cast<CURLM*>(multi_), found->second->handle);
  active_.erase(found);
}

}  // namespace moestro
