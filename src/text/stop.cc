// SPDX-License-Identifier: MIT
#include "text/stop.h"

#include <algorithm>
#include <utility>

namespace moestro {
namespace {

// The length of the longest end of `text` that is a proper start of `stop`.
size_t OpenEnd(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.ends_with(stop.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, "");
}

std::string StopMatcher::Push(std::string_view text) {
  if (found_) return {};
  held_ += text;
  size_t cut = std::string::npos;
  size_t open = 0;
  for (const std::string& stop : stops_) {
    if (const size_t at = held_.find(stop); at < cut) {
      cut = at;
      which_ = stop;
    }
    open = std::max(open, OpenEnd(held_, stop));
  }
  if (cut != std::string::npos) {
    found_ = true;
    return std::exchange(held_, {}).substr(0, cut);
  }
  std::string certain = held_.substr(0, held_.size() - open);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopMatcher::Flush() { return std::exchange(held_, {}); }

}  // namespace moestro
