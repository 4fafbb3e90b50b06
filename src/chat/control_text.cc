// SPDX-License-Identifier: MIT
#include "chat/control_text.h"

#include "base/text.h"

namespace moestro {

ControlTexts::ControlTexts(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    if (text.empty() || ReadUtf8(text).length >= text.size()) continue;
    if (text.contains(kTextMark)) continue;
    if (nodes_.empty()) nodes_.emplace_back();
    begins_[static_cast<uint8_t>(text.front())] = true;
    uint32_t node = 0;
    for (const char c : text) {
      const auto [next, is_new] =
          nodes_[node].next.try_emplace(c, static_cast<uint32_t>(nodes_.size()));
      node = next->second;
      if (is_new) nodes_.emplace_back();
    }
    nodes_[node].is_end = true;
  }
}

size_t ControlTexts::MatchAt(std::string_view text) const {
  if (text.empty() || !begins_[static_cast<uint8_t>(text.front())]) return 0;
  uint32_t node = 0;
  size_t longest = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto next = nodes_[node].next.find(text[i]);
    if (next == nodes_[node].next.end()) break;
    node = next->second;
    if (nodes_[node].is_end) longest = i + 1;
  }
  return longest;
}

std::string MarkControls(const ControlTexts& controls, std::string_view text) {
  std::string marked;
  marked.reserve(text.size());
  size_t copied = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (controls.MatchAt(text.substr(i)) == 0) continue;
    // Another control text may begin inside, so the search goes on there.
    const size_t inside = i + ReadUtf8(text.substr(i)).length;
    marked += text.substr(copied, inside - copied);
    marked += kTextMark;
    copied = inside;
    i = inside - 1;
  }
  marked += text.substr(copied);
  return marked;
}

UnmarkedText Unmark(const ControlTexts& controls, std::string_view marked) {
  UnmarkedText clean;
  clean.text.reserve(marked.size());
  TextPart part;
  bool is_marked = false;
  const auto close = [&] {
    part.end = clean.text.size();
    if (is_marked && part.end > part.begin) clean.plain.push_back(part);
    is_marked = false;
  };
  while (!marked.empty()) {
    if (marked.starts_with(kTextMark)) {
      is_marked = true;
      marked.remove_prefix(kTextMark.size());
      continue;
    }
    const size_t control = controls.MatchAt(marked);
    if (control > 0) close();
    const size_t n = control > 0 ? control : 1;
    clean.text += marked.substr(0, n);
    marked.remove_prefix(n);
    if (control > 0) part.begin = clean.text.size();
  }
  close();
  return clean;
}

}  // namespace moestro
