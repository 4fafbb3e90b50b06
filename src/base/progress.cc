// SPDX-License-Identifier: MIT
#include "base/progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/format.h"
#include "base/visible.h"

namespace moestro {

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
