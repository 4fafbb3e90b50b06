// SPDX-License-Identifier: MIT
#include "chat/marked_object.h"

#include <algorithm>

#include "base/json.h"

namespace moestro {
namespace {

class MarkedScanner {
 public:
  MarkedScanner(std::string_view text, std::string_view mark) : text_(text), mark_(mark) {}

  MarkedScan Run() {
    while (true) {
      at_ += CountBlanks(rest());
      const Scan state = rest().empty() ? Scan::kOpen : Next(rest().front());
      const bool is_over = state == Scan::kWhole && open_.empty();
      if (state == Scan::kWhole && !is_over) continue;
      return {.state = state, .length = at_, .json = std::move(json_)};
    }
  }

 private:
  enum class Expected : uint8_t { kObject, kValue, kValueOrEnd, kKey, kKeyOrEnd, kMore };

  std::string_view rest() const { return text_.substr(at_); }

  // Reads one part; kWhole: go on.
  Scan Next(char c) {
    switch (expected_) {
      case Expected::kObject:
        return c == '{' ? Open(c, Expected::kKeyOrEnd) : Scan::kBroken;
      case Expected::kMore:
        if (c != ',') return Close(c);
        ++at_;
        json_ += ", ";
        expected_ = open_.back() == '{' ? Expected::kKey : Expected::kValue;
        return Scan::kWhole;
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

  // Longer keys are a text that was not meant as one.
  static constexpr size_t kLongestKey = 256;

  Scan ReadKey() {
    const size_t end = rest().find_first_of(":,{}[]\n");
    if (std::min(end, rest().size()) > kLongestKey) return Scan::kBroken;
    if (end == std::string_view::npos) return Scan::kOpen;
    if (end == 0 || rest()[end] != ':') return Scan::kBroken;
    json_ += Json(rest().substr(0, end)).Dump() + ": ";
    at_ += end + 1;
    expected_ = Expected::kValue;
    return Scan::kWhole;
  }

  Scan ReadValue(char c) {
    if (c == '{') return Open(c, Expected::kKeyOrEnd);
    if (c == '[') return Open(c, Expected::kValueOrEnd);
    if (rest().starts_with(mark_)) return ReadString();
    if (mark_.starts_with(rest())) return Scan::kOpen;
    if (c == '"') return Scan::kBroken;
    const JsonScan scalar = ScanJson(rest());
    if (scalar.state == Scan::kWhole) Take(rest().substr(0, scalar.length), scalar.length);
    return scalar.state;
  }

  Scan ReadString() {
    const std::string_view inner = rest().substr(mark_.size());
    const size_t end = inner.find(mark_);
    if (end == std::string_view::npos) return Scan::kOpen;
    Take(Json(inner.substr(0, end)).Dump(), end + 2 * mark_.size());
    return Scan::kWhole;
  }

  void Take(std::string_view value, size_t length) {
    json_ += value;
    at_ += length;
    expected_ = Expected::kMore;
  }

  Scan Open(char c, Expected next) {
    if (open_.size() == static_cast<size_t>(Json::kMaxDepth)) return Scan::kBroken;
    open_ += c;
    json_ += c;
    ++at_;
    expected_ = next;
    return Scan::kWhole;
  }

  Scan Close(char c) {
    if (c != (open_.back() == '{' ? '}' : ']')) return Scan::kBroken;
    open_.pop_back();
    Take({&c, 1}, 1);
    return Scan::kWhole;
  }

  std::string_view text_;
  std::string_view mark_;
  size_t at_ = 0;
  std::string open_;  // brackets that are not closed
  std::string json_;
  Expected expected_ = Expected::kObject;
};

}  // namespace

MarkedScan ScanMarked(std::string_view text, std::string_view mark) {
  return MarkedScanner(text, mark).Run();
}

}  // namespace moestro
