// SPDX-License-Identifier: MIT
#include "text/text_request.h"

#include <algorithm>
#include <utility>

namespace moestro {

StopMatcher::Search::Search(std::string text) : stop(std::move(text)), fallback(stop.size() + 1) {
  for (size_t n = 2; n <= stop.size(); ++n) {
    size_t both = fallback[n - 1];
    while (both > 0 && stop[both] != stop[n - 1]) both = fallback[both];
    fallback[n] = stop[both] == stop[n - 1] ? both + 1 : 0;
  }
}

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    if (!stop.empty()) searches_.emplace_back(std::move(stop));
  }
}

std::optional<size_t> StopMatcher::EndIn(std::string_view text, Search& search) {
  for (size_t i = 0; i < text.size(); ++i) {
    ++steps_;
    while (search.matched > 0 && search.stop[search.matched] != text[i]) {
      ++steps_;
      search.matched = search.fallback[search.matched];
    }
    if (search.stop[search.matched] == text[i]) ++search.matched;
    if (search.matched == search.stop.size()) return i + 1;
  }
  return std::nullopt;
}

std::string StopMatcher::Push(std::string_view text) {
  if (found_) return {};
  const size_t before = held_.size();
  held_ += text;
  // The stop string that begins first counts; of several at one place, the first in the list.
  size_t cut = std::string::npos;
  size_t open = 0;
  for (Search& search : searches_) {
    if (const auto end = EndIn(text, search)) {
      const size_t begin = before + *end - search.stop.size();
      if (begin < cut) {
        cut = begin;
        which_ = search.stop;
      }
    }
    open = std::max(open, search.matched);
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

std::string_view ToString(StopReason reason) {
  switch (reason) {
    case StopReason::kEndToken:
      return "end";
    case StopReason::kLimit:
      return "limit";
    case StopReason::kStopString:
      return "stop string";
    case StopReason::kContextFull:
      return "context full";
    case StopReason::kTimeLimit:
      return "time limit";
    case StopReason::kInterrupted:
      return "interrupted";
    case StopReason::kOutputClosed:
      return "output closed";
  }
  return "";
}

}  // namespace moestro
