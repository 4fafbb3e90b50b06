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

  NestedScan Run() {
    Scan state = Scan::kWhole;
    while (state == Scan::kWhole && !is_over_) state = open_.empty() ? ReadTop() : ReadInside();
    return {.state = state, .length = at_, .json = std::move(json_)};
  }

 private:
  struct Tag {
    std::string_view key;
    std::string json;  // JSON of its parts so far
    size_t n_parts = 0;
    size_t n_items = 0;
  };

  std::string_view rest() const { return text_.substr(at_); }

  Scan ReadTop() {
    at_ += CountBlanks(rest());
    if (rest().starts_with(style_.call_end)) {
      at_ += style_.call_end.size();
      json_ += "}";
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
    if (open_.size() >= static_cast<size_t>(Json::kMaxDepth) - 1) return Scan::kBroken;
    open_.push_back({.key = key, .json = {}});
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
    const Tag tag = std::move(open_.back());
    open_.pop_back();
    std::string value;
    if (tag.n_parts == 0) {
      std::string path;
      for (const Tag& outer : open_) path += std::string(outer.key) + "\n";
      value = text_of_(path + std::string(tag.key), text);
    } else {
      const bool is_list = tag.n_items == tag.n_parts;
      value = (is_list ? "[" : "{") + tag.json + (is_list ? "]" : "}");
      if (!is_list && tag.n_items > 0) return Scan::kBroken;
    }
    if (open_.empty()) {
      if (json_.size() > 1) json_ += ", ";
      json_ += Json(tag.key).Dump() + ": " + value;
    } else {
      AddPart(open_.back(), tag.key, value);
    }
    return Scan::kWhole;
  }

  static void AddPart(Tag& outer, std::string_view key, const std::string& value) {
    if (outer.n_parts > 0) outer.json += ", ";
    ++outer.n_parts;
    if (key == kItem) {
      ++outer.n_items;
    } else {
      outer.json += Json(key).Dump() + ": ";
    }
    outer.json += value;
  }

  const CallStyle& style_;
  std::string_view mark_;  // beginning of every tag
  std::string_view text_;
  const NestedText& text_of_;
  size_t at_ = 0;
  std::string json_ = "{";
  std::vector<Tag> open_;
  bool is_over_ = false;
};

}  // namespace

NestedScan ScanNested(const CallStyle& style, std::string_view text, const NestedText& text_of) {
  return NestedScanner(style, text, text_of).Run();
}

}  // namespace moestro
