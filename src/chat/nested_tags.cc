// SPDX-License-Identifier: MIT
#include "chat/nested_tags.h"

#include <utility>
#include <vector>

#include "base/json.h"

namespace moestro {
namespace {

constexpr std::string_view kItem = "item";
constexpr size_t kLongestKey = 256;

class NestedScanner {
 public:
  NestedScanner(const CallStyle& style, std::string_view text, const NestedText& text_of)
      : style_(style),
        mark_(style.key_begin.substr(0, style.key_begin.size() - 1)),
        text_(text),
        text_of_(text_of) {}

  SpelledScan Run() {
    Scan state = Scan::kWhole;
    while (state == Scan::kWhole && !is_over_) state = open_.empty() ? ReadTop() : ReadInside();
    json_.resize(certain_bytes_);
    return {.state = state, .length = at_, .json = std::move(json_)};
  }

 private:
  struct Tag {
    std::string_view key;
    size_t value_at = 0;  // where the JSON of the value begins
    size_t n_parts = 0;
    size_t n_items = 0;
  };

  std::string_view rest() const { return text_.substr(at_); }

  Scan ReadTop() {
    at_ += CountBlanks(rest());
    if (rest().starts_with(style_.call_end)) {
      at_ += style_.call_end.size();
      json_ += "}";
      certain_bytes_ = json_.size();
      is_over_ = true;
      return Scan::kWhole;
    }
    if (style_.call_end.starts_with(rest()) || style_.key_begin.starts_with(rest())) {
      return Scan::kOpen;
    }
    return ReadOpening();
  }

  Scan ReadOpening() {
    if (!rest().starts_with(style_.key_begin)) return Scan::kBroken;
    std::string_view key;
    const Scan state = ReadKey(style_.key_begin.size(), key);
    if (state != Scan::kWhole) return state;
    BeginPart(key);
    open_.push_back({.key = key, .value_at = json_.size()});
    return Scan::kWhole;
  }

  // Reads a key from `begin` on and the end of its tag.
  Scan ReadKey(size_t begin, std::string_view& key) {
    const std::string_view head = rest().substr(begin, kLongestKey + style_.key_end.size());
    const size_t end = head.find(style_.key_end);
    if (end == std::string_view::npos) {
      return head.size() < kLongestKey ? Scan::kOpen : Scan::kBroken;
    }
    key = head.substr(0, end);
    if (key.empty() || key.find_first_of("<>/\"\r\n") != std::string_view::npos) {
      return Scan::kBroken;
    }
    at_ += begin + end + style_.key_end.size();
    return Scan::kWhole;
  }

  // Reads the text up to the next tag, which closes the open one or opens one inside.
  Scan ReadInside() {
    const size_t found = rest().find(mark_);
    if (found == std::string_view::npos) return Scan::kOpen;
    const std::string_view text = rest().substr(0, found);
    const std::string_view behind = rest().substr(found);
    if (behind.starts_with(style_.value_end)) return ReadClosing(text, found);
    if (style_.value_end.starts_with(behind)) return Scan::kOpen;
    if (CountBlanks(text) < text.size()) return Scan::kBroken;
    at_ += found;
    return ReadOpening();
  }

  Scan ReadClosing(std::string_view text, size_t found) {
    std::string_view key;
    const Scan state = ReadKey(found + style_.value_end.size(), key);
    if (state != Scan::kWhole) return state;
    if (key != open_.back().key) return Scan::kBroken;
    const Tag tag = open_.back();
    open_.pop_back();
    if (tag.n_parts == 0) {
      json_ += text_of_(open_.empty() ? std::optional(tag.key) : std::nullopt, text);
    } else {
      const bool is_list = tag.n_items == tag.n_parts;
      if (!is_list && tag.n_items > 0) return Scan::kBroken;
      json_[tag.value_at] = is_list ? '[' : '{';
      json_ += is_list ? ']' : '}';
    }
    if (open_.empty()) certain_bytes_ = json_.size();
    return Scan::kWhole;
  }

  // Writes the text before a tag's value. The bracket of the tag around the value is known when
  // that tag is closed.
  void BeginPart(std::string_view key) {
    const bool is_parameter = open_.empty();
    const bool is_first = is_parameter ? json_.size() == 1 : open_.back().n_parts == 0;
    if (is_first && !is_parameter) json_ += '{';
    if (!is_first) json_ += ", ";
    if (is_parameter || key != kItem) json_ += Json(key).Dump() + ": ";
    if (is_parameter) return;
    ++open_.back().n_parts;
    if (key == kItem) ++open_.back().n_items;
  }

  const CallStyle& style_;
  std::string_view mark_;  // beginning of every tag
  std::string_view text_;
  const NestedText& text_of_;
  size_t at_ = 0;
  std::string json_ = "{";
  size_t certain_bytes_ = 1;
  std::vector<Tag> open_;
  bool is_over_ = false;
};

}  // namespace

SpelledScan ScanNested(const CallStyle& style, std::string_view text, const NestedText& text_of) {
  return NestedScanner(style, text, text_of).Run();
}

}  // namespace moestro
