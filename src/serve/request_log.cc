// SPDX-License-Identifier: MIT
#include "serve/request_log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr size_t kLongestName = 128;

double Milliseconds(double seconds) { return std::round(seconds * 1e6) / 1e3; }

double UnixSeconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::string_view NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kToolCalls:
      return "tool_calls";
  }
  return "";
}

}  // namespace

bool IsRepeatable(std::string_view name) {
  const auto is_printable = [](char c) { return c >= ' ' && c <= '~'; };
  return !name.empty() && name.size() <= kLongestName && std::ranges::all_of(name, is_printable);
}

std::string RequestId(std::string_view asked) {
  if (IsRepeatable(asked)) return std::string(asked);
  std::random_device device;
  return Format("req_{:08x}{:08x}", device(), device());
}

void NoteEnd(const ReplyEnd& end, double seconds, RequestRecord& record) {
  const TextUsage& usage = end.usage;
  record.cached_tokens += usage.cached_tokens;
  record.completion_tokens += usage.completion_tokens;
  record.prompt_seconds += usage.prompt_seconds;
  record.completion_seconds += usage.completion_seconds;
  record.queue_seconds =
      std::max(record.queue_seconds, seconds - usage.prompt_seconds - usage.completion_seconds);
  record.finish = NameOf(end.reason);
}

std::string LogLineOf(const RequestRecord& record, double unix_seconds, uint64_t lost) {
  Json line = Json::Object();
  line.Set("time", std::round(unix_seconds * 1e3) / 1e3).Set("id", record.id);
  if (record.key > 0) line.Set("key", Format("key {}", record.key));
  line.Set("route", record.route).Set("status", record.status);
  line.Set("total_ms", Milliseconds(record.seconds));
  if (!record.finish.empty()) {
    line.Set("prompt_tokens", record.prompt_tokens)
        .Set("cached_tokens", record.cached_tokens)
        .Set("completion_tokens", record.completion_tokens)
        .Set("queue_ms", Milliseconds(record.queue_seconds))
        .Set("prefill_ms", Milliseconds(record.prompt_seconds))
        .Set("decode_ms", Milliseconds(record.completion_seconds))
        .Set("finish", record.finish);
  }
  if (lost > 0) line.Set("lines_lost", lost);
  return line.Dump();
}

void RequestLines::Write(const RequestRecord& record) {
  const std::lock_guard lock(mutex_);
  const std::string line = LogLineOf(record, UnixSeconds(), lost_) + "\n";
  const std::string bytes = is_cut_ ? "\n" + line : line;
  // A pipe that poll() reports writable takes a line without waiting (PIPE_BUF).
  pollfd log{.fd = fd_, .events = POLLOUT, .revents = 0};
  const bool is_ready = poll(&log, 1, 0) > 0 && (log.revents & POLLOUT) != 0;
  const ssize_t n = is_ready ? write(fd_, bytes.data(), bytes.size()) : -1;
  const bool is_whole = n == static_cast<ssize_t>(bytes.size());
  lost_ = is_whole ? 0 : lost_ + 1;
  if (n > 0) is_cut_ = !is_whole;
}

}  // namespace moestro
