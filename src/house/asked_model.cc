// SPDX-License-Identifier: MIT
#include "house/asked_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/json.h"
#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "house/model_list.h"

namespace moestro {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

// Reads a JSON object's members by their bounds.
class MemberScan {
 public:
  explicit MemberScan(std::string_view text) : text_(text) {}

  // False: the text is no object up to its end.
  template <class Member>
  bool Run(const Member& member) {
    SkipBlanks();
    if (!Takes('{')) return false;
    SkipBlanks();
    if (Takes('}')) return IsAtEnd();
    for (;;) {
      SkipBlanks();
      const std::string_view key = TakeString();
      SkipBlanks();
      if (key.empty() || !Takes(':')) return false;
      SkipBlanks();
      const std::string_view value = TakeValue();
      if (value.empty()) return false;
      member(key, value);
      SkipBlanks();
      if (Takes('}')) return IsAtEnd();
      if (!Takes(',')) return false;
    }
  }

 private:
  void SkipBlanks() { at_ = std::min(text_.find_first_not_of(kBlank, at_), text_.size()); }
  bool Takes(char c) {
    const bool is_there = at_ < text_.size() && text_[at_] == c;
    at_ += is_there ? 1 : 0;
    return is_there;
  }
  bool IsAtEnd() {
    SkipBlanks();
    return at_ == text_.size();
  }
  // A string with its quotes; empty: there is none, or it does not end.
  std::string_view TakeString() {
    const size_t begin = at_;
    if (!Takes('"')) return {};
    for (;;) {
      // A loop is three times as fast as find_first_of().
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\') ++at_;
      if (at_ >= text_.size()) return {};
      if (text_[at_] == '"') break;
      at_ += 2;
    }
    ++at_;
    return text_.substr(begin, at_ - begin);
  }
  // Empty: the value does not end, or there is none.
  std::string_view TakeValue() {
    const size_t begin = at_;
    if (at_ >= text_.size()) return {};
    if (text_[at_] == '"') return TakeString();
    if (text_[at_] != '{' && text_[at_] != '[') {
      at_ = std::min(text_.find_first_of(",}] \t\r\n", at_), text_.size());
      return text_.substr(begin, at_ - begin);
    }
    size_t depth = 0;
    do {
      at_ = text_.find_first_of("\"{}[]", at_);
      if (at_ >= text_.size()) return {};
      const char c = text_[at_];
      if (c == '"') {
        if (TakeString().empty()) return {};
        continue;
      }
      depth += c == '{' || c == '[' ? 1 : -1;
      ++at_;
    } while (depth > 0);
    return text_.substr(begin, at_ - begin);
  }

  const std::string_view text_;
  size_t at_ = 0;
};

// The text of a string of JSON; nullopt: it is none.
std::optional<std::string> TextOfString(std::string_view value) {
  const Result<Json> json = Json::Parse(value);
  return json ? json->view().text() : std::nullopt;
}

std::string NameOfKey(std::string_view key) {
  constexpr size_t kLongestKey = 128;
  if (key.size() > kLongestKey) return "";
  if (key.contains('\\')) return TextOfString(key).value_or("");
  return std::string(key.substr(1, key.size() - 2));
}

bool IsEmptyValue(std::string_view value) {
  return value == "null" || value == "\"\"" || value == "[]";
}

ApiStatus ReadName(std::string_view value, std::string& name) {
  if (value == "null") return {};
  // A letter takes six bytes at most.
  const bool is_short = value.size() <= 6 * kLongestName + 2;
  const std::optional<std::string> text =
      value.starts_with('"') && is_short ? TextOfString(value) : std::nullopt;
  if (value.starts_with('"') && (!is_short || (text && text->size() > kLongestName))) {
    return BadRequest("model", Format("\"model\" is longer than the {} bytes that a name may have",
                                      kLongestName));
  }
  if (!text) return BadRequest("model", "\"model\" should be a model's name, a text");
  name = *text;
  return {};
}

ApiStatus ReadKeepAlive(std::string_view value, std::optional<double>& seconds) {
  if (value == "null") return {};
  constexpr size_t kLongest = 64;
  const bool is_text = value.starts_with('"') && value.size() <= kLongest;
  const Result<double> time =
      ParseKeepAlive(is_text ? TextOfString(value).value_or("?") : std::string(value));
  if (!time) return BadRequest("keep_alive", "\"keep_alive\": " + time.error().message);
  seconds = *time;
  return {};
}

}  // namespace

ApiResult<AskedModel> ReadAskedModel(std::string_view body) {
  constexpr std::array<std::string_view, 3> kTexts = {"prompt", "messages", "input"};
  AskedModel asked;
  ApiStatus status;
  std::string other_name;  // older clients of Ollama
  const bool is_object = MemberScan(body).Run([&](std::string_view key, std::string_view value) {
    const std::string name = NameOfKey(key);
    if (!status) return;
    if (name == "model") {
      asked.model.clear();
      status = ReadName(value, asked.model);
    } else if (name == "name") {
      if (value.starts_with('"')) status = ReadName(value, other_name);
    } else if (name == "keep_alive") {
      asked.keep_alive.reset();
      status = ReadKeepAlive(value, asked.keep_alive);
    } else if (std::ranges::contains(kTexts, name)) {
      asked.has_text = asked.has_text || !IsEmptyValue(value);
    }
  });
  if (!is_object) return BadRequest("", "the body should be a JSON object");
  if (!status) return std::unexpected(status.error());
  if (asked.model.empty()) asked.model = std::move(other_name);
  return asked;
}

Result<double> ParseKeepAlive(std::string_view text) {
  const auto wrong = [&] {
    return Fail(Errc::kUsage,
                "'{}' is no time; write 5m, 1h30m, seconds, 0 (end at once) or -1 (stay)",
                Printable(text, 64));
  };
  if (text == "forever") return -1.0;
  if (const std::optional<double> seconds = ParseNumber<double>(text)) return *seconds;
  constexpr std::array<std::pair<std::string_view, double>, 6> kUnits = {
      {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1.0}, {"m", 60.0}, {"h", 3600.0}}};
  const bool is_negative = text.starts_with('-');
  std::string_view rest = text.substr(is_negative ? 1 : 0);
  if (rest.empty()) return wrong();
  double sum = 0.0;
  while (!rest.empty()) {
    const size_t digits = std::min(rest.find_first_not_of("0123456789."), rest.size());
    const std::optional<double> number = ParseNumber<double>(rest.substr(0, digits));
    rest.remove_prefix(digits);
    const size_t letters = std::min(rest.find_first_of("0123456789."), rest.size());
    const auto* const unit =
        std::ranges::find(kUnits, rest.substr(0, letters), [](const auto& u) { return u.first; });
    if (!number || unit == kUnits.end()) return wrong();
    sum += *number * unit->second;
    rest.remove_prefix(letters);
  }
  if (!std::isfinite(sum)) return wrong();
  return is_negative ? -sum : sum;
}

}  // namespace moestro
