// SPDX-License-Identifier: MIT
#include "chat/marked_object.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace moestro {
namespace {

class MarkedScanner final : public SpelledScanner {
 public:
  MarkedScanner(std::string_view text, std::string_view mark)
      : SpelledScanner(text, "", ""), mark_(mark) {}

 private:
  enum class Expected : uint8_t { kObject, kValue, kValueOrEnd, kKey, kKeyOrEnd, kMore };

  Scan Next(char c) override {
    switch (expected_) {
      case Expected::kObject:
        return c == '{' ? Open(c, Expected::kKeyOrEnd) : Scan::kBroken;
      case Expected::kMore:
        if (c != ',') return Close(c);
        return Pass(", ", 1, open_.back() == '{' ? Expected::kKey : Expected::kValue);
      case Expected::kKeyOrEnd:
        return c == '}' ? Close(c) : ReadKey();
      case Expected::kKey:
        return ReadKey();
      case Expected::kValueOrEnd:
        return c == ']' ? Close(c) : ReadValue(c);
      case Expected::kValue:
        return ReadValue(c);
    }
    return Scan::kBroken;
  }

  // A key may be marked as strings are.
  Scan ReadKey() {
    if (rest().starts_with(mark_)) return ReadMarkedKey();
    if (mark_.starts_with(rest())) return Scan::kOpen;
    const size_t end = rest().find(':');
    const std::string_view key = rest().substr(0, end);
    if (!IsMarkedKey(key)) return Scan::kBroken;
    return end == std::string_view::npos ? Scan::kOpen : TakeKey(key, end + 1);
  }

  Scan ReadMarkedKey() {
    const std::string_view inner = rest().substr(mark_.size());
    const size_t end = inner.find(mark_);
    if (end == std::string_view::npos) return Scan::kOpen;
    const size_t colon = end + 2 * mark_.size();
    if (colon == rest().size()) return Scan::kOpen;
    if (rest()[colon] != ':') return Scan::kBroken;
    return TakeKey(inner.substr(0, end), colon + 1);
  }

  Scan TakeKey(std::string_view key, size_t length) {
    AppendText(key);
    return Pass(": ", length, Expected::kValue);
  }

  // Appends a JSON string.
  void AppendText(std::string_view text) {
    const auto is_plain = [](char c) { return c >= ' ' && c != '"' && c != '\\' && c < 0x7F; };
    if (!std::ranges::all_of(text, is_plain)) {
      json_ += Json(text).Dump();
      return;
    }
    json_ += '"';
    json_ += text;
    json_ += '"';
  }

  Scan ReadValue(char c) {
    if (c == '{') return Open(c, Expected::kKeyOrEnd);
    if (c == '[') return Open(c, Expected::kValueOrEnd);
    if (rest().starts_with(mark_)) return ReadString();
    if (mark_.starts_with(rest())) return Scan::kOpen;
    if (c == '"') return Scan::kBroken;
    for (const auto& [word, json] :
         {std::pair{"True", "true"}, {"False", "false"}, {"None", "null"}}) {
      const std::string_view other = word;
      if (rest().starts_with(other)) return Pass(json, other.size());
      if (other.starts_with(rest())) return Scan::kOpen;
    }
    const JsonScan scalar = ScanJson(rest());
    if (scalar.state != Scan::kWhole) return scalar.state;
    return Pass(rest().substr(0, scalar.length), scalar.length);
  }

  Scan ReadString() {
    const std::string_view inner = rest().substr(mark_.size());
    const size_t end = inner.find(mark_);
    if (end == std::string_view::npos) return Scan::kOpen;
    AppendText(inner.substr(0, end));
    return Pass({}, end + 2 * mark_.size());
  }

  Scan Pass(std::string_view json, size_t length, Expected next = Expected::kMore) {
    Add(json, length);
    expected_ = next;
    return Scan::kWhole;
  }

  Scan Open(char c, Expected next) {
    open_ += c;
    return Pass({&c, 1}, 1, next);
  }

  Scan Close(char c) {
    if (c != (open_.back() == '{' ? '}' : ']')) return Scan::kBroken;
    open_.pop_back();
    return Pass({&c, 1}, 1);
  }

  std::string_view mark_;
  Expected expected_ = Expected::kObject;
};

}  // namespace

bool IsMarkedKey(std::string_view key) {
  constexpr size_t kLongestKey = 512;  // bytes
  return !key.empty() && key.size() <= kLongestKey && !kBlanks.contains(key.front()) &&
         key.find_first_of(":,{}[]<>\"\t\r\n") == std::string_view::npos;
}

SpelledScan ScanMarked(std::string_view text, std::string_view mark) {
  return MarkedScanner(text, mark).Run();
}

}  // namespace moestro
