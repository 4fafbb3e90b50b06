// SPDX-License-Identifier: MIT
#include "base/terminal.h"

#include <limits.h>
#include <poll.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/text.h"

namespace moestro {
namespace {

// REQUIRES: `text` is one character of valid UTF-8.
uint32_t CodePointOf(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  if (text.size() == 1) return byte(0);
  uint32_t code = byte(0) & (0xFFU >> (text.size() + 1));
  for (size_t i = 1; i < text.size(); ++i) code = (code << 6U) | (byte(i) & 0x3FU);
  return code;
}

bool IsObeyed(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) ||                           // C0, DEL, C1
         code == 0x2028 || code == 0x2029 ||                                        // ends of lines
         (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);  // directions
}

std::string Escaped(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Sequence next = ReadUtf8(text);
    const std::string_view bytes = text.substr(0, next.is_valid ? next.length : 1);
    text.remove_prefix(bytes.size());
    if (!next.is_valid) {
      out += Format("\\x{:02x}", static_cast<uint8_t>(bytes[0]));
    } else if (kept.contains(bytes[0])) {
      out += bytes;
    } else if (const uint32_t code = CodePointOf(bytes); IsObeyed(code)) {
      out += Format("\\u{:04x}", code);
    } else {
      out += bytes;
    }
  }
  return out;
}

}  // namespace

std::string Visible(std::string_view text) { return Escaped(text, ""); }

std::string VisibleLines(std::string_view text) { return Escaped(text, "\n\t"); }

std::string VisibleStream::Add(std::string_view part) {
  std::string out;
  out.reserve(part.size());
  for (const char c : part) {
    const auto byte = static_cast<uint8_t>(c);
    const bool is_c1 = may_be_control_ && byte >= 0x80 && byte <= 0x9F;
    may_be_control_ = byte == 0xC2;
    if (is_c1 || (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) {
      out += is_c1 ? "?" : Format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

void PrintOnStderr(std::string_view text) {
  const std::string shown = VisibleLines(text);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

bool PrintOnStderrAtOnce(std::string_view text) {
  const std::string shown = VisibleLines(text);
  // Between poll() and write() another thread's bytes could take the room.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  for (size_t at = 0; at < shown.size(); at += PIPE_BUF) {
    // A pipe that poll() reports writable takes PIPE_BUF bytes without waiting.
    pollfd out{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    if (::poll(&out, 1, 0) <= 0 || (out.revents & POLLOUT) == 0) return false;
    const size_t n = std::min<size_t>(shown.size() - at, PIPE_BUF);
    // A thread that waits in a call of stdio holds the stream's lock.
    if (::write(STDERR_FILENO, &shown[at], n) != static_cast<ssize_t>(n)) return false;
  }
  return true;
}

namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
  }
  return spdlog::level::warn;
}

// Lines on stderr; see LogWithoutWaiting().
class StderrSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void LeaveOutWhatWaits() {
    const std::lock_guard lock(mutex_);
    waits_ = false;
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t formatted;
    formatter_->format(message, formatted);
    std::string text(formatted.data(), formatted.size());
    if (waits_) {
      std::fwrite(text.data(), 1, text.size(), stderr);
      return;
    }
    if (lost_ > 0) {
      text.insert(
          0, Format("moestro: warning: {} lines are missing here, which nobody read\n", lost_));
    }
    lost_ = PrintOnStderrAtOnce(text) ? 0 : lost_ + 1;
  }
  void flush_() override {}  // stderr has no buffer

 private:
  bool waits_ = true;
  uint64_t lost_ = 0;  // lines since the last one that stderr took
};

struct Log {
  std::shared_ptr<StderrSink> sink = std::make_shared<StderrSink>();
  spdlog::logger logger = spdlog::logger("moestro", sink);
};

Log& TheLog() {
  static const std::unique_ptr<Log> log = [] {
    auto made = std::make_unique<Log>();
    made->logger.set_pattern("%n: %l: %v");
    made->logger.set_level(spdlog::level::warn);
    return made;
  }();
  return *log;
}

}  // namespace

void SetLogLevel(LogLevel level) { TheLog().logger.set_level(ToSpdlog(level)); }

void LogWithoutWaiting() { TheLog().sink->LeaveOutWhatWaits(); }

void LogLine(LogLevel level, std::string_view line) {
  const std::string shown = Visible(line);
  TheLog().logger.log(ToSpdlog(level), spdlog::string_view_t(shown.data(), shown.size()));
}

std::string RenderProgress(std::string_view what, uint64_t done, uint64_t total, size_t width) {
  const double share = done >= total ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
  // Rounded down: 100 % means finished.
  std::string line = Format("{:3d} %", static_cast<int>(share * 100.0));
  const size_t room = width > line.size() ? width - line.size() : 0;
  const std::string shown = Visible(what);
  const std::string_view label = std::string_view(shown).substr(0, room);
  constexpr size_t kFrame = 4;  // blank, brackets, blank
  constexpr size_t kLongestBar = 40;
  if (room > label.size() + kFrame) {
    const size_t bar = std::min(room - label.size() - kFrame, kLongestBar);
    const auto filled = static_cast<size_t>(share * static_cast<double>(bar));
    return Format("{} [{}{}] {}", label, std::string(filled, '#'), std::string(bar - filled, '.'),
                  line);
  }
  return std::string(label) + line.substr(0, width);
}

ProgressBar::ProgressBar(Options options) : options_(std::move(options)) {}

ProgressBar::~ProgressBar() { Clear(); }

void ProgressBar::Update(std::string_view what, uint64_t done, uint64_t total) {
  if (!options_.enabled) return;
  const double now = options_.now();
  if (what != what_) {
    Clear();
    what_ = what;
    started_ = now;
  }
  if (done >= total) {
    Clear();
    what_.clear();
    return;
  }
  if (now - started_ < options_.delay) return;
  if (visible_ && now - drawn_ < options_.interval) return;
  options_.write("\r" + RenderProgress(what, done, total, options_.width) + "\x1b[K");
  visible_ = true;
  drawn_ = now;
}

void ProgressBar::Clear() {
  if (visible_) options_.write("\r\x1b[K");
  visible_ = false;
}

ProgressBar::Options ProgressBar::Stderr() {
  return {.enabled = isatty(STDERR_FILENO) == 1,
          .now =
              [] {
                const auto since = std::chrono::steady_clock::now().time_since_epoch();
                return std::chrono::duration<double>(since).count();
              },
          .write =
              [](std::string_view text) {
                std::fwrite(text.data(), 1, text.size(), stderr);
                std::fflush(stderr);
              }};
}

}  // namespace moestro
