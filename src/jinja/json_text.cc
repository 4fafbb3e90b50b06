// SPDX-License-Identifier: MIT
#include "jinja/json_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/json.h"
#include "jinja/characters.h"
#include "jinja/failure.h"

namespace moestro::jinja {
namespace {

using Library = nlohmann::ordered_json;

// Makes values of the library parser's events.
class ValueBuilder final : public nlohmann::json_sax<Library> {
 public:
  explicit ValueBuilder(JsonReading& reading) : reading_(reading), most_(reading.values_left) {}

  bool null() override { return Add(Value::None()); }
  bool boolean(bool value) override { return Add(Value(value)); }
  bool number_integer(number_integer_t value) override { return Add(Value(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    return Add(std::in_range<int64_t>(value) ? Value(static_cast<int64_t>(value))
                                             : Value::BigInt(std::to_string(value)));
  }
  // Digits alone are a whole number, of any length.
  bool number_float(number_float_t value, const string_t& digits) override {
    return Add(digits.find_first_of(".eE") == string_t::npos ? Value::BigInt(digits)
                                                             : Value(double{value}));
  }
  bool string(string_t& text) override { return Add(Value(Changed(std::move(text)))); }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_array(size_t) override { return Open(Value::MakeList()); }
  bool start_object(size_t) override { return Open(Value::MakeDict()); }
  bool end_array() override { return Close(); }
  bool end_object() override { return Close(); }
  bool key(string_t& name) override {
    open_.back().key = Changed(std::move(name));
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Refuse(Format("not JSON: mistake at byte {}", position));
  }

  Value& root() { return root_; }
  const std::string& error() const { return error_; }

 private:
  struct OpenValue {
    Value value;
    std::string key;
  };

  std::string Changed(std::string text) const {
    return reading_.change_text ? reading_.change_text(std::move(text)) : std::move(text);
  }
  bool Refuse(std::string why) {
    error_ = std::move(why);
    return false;
  }
  bool Open(Value value) {
    if (open_.size() == Json::kMaxDepth) {
      return Refuse(Format("JSON nested deeper than {} levels", Json::kMaxDepth));
    }
    open_.push_back({.value = std::move(value), .key = {}});
    return true;
  }
  bool Close() {
    Value value = std::move(open_.back().value);
    open_.pop_back();
    return Add(std::move(value));
  }
  bool Add(Value value) {
    if (reading_.values_left == 0) return Refuse(Format("more than {} values of JSON", most_));
    --reading_.values_left;
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (const Value& owner = open_.back().value; owner.is_dict()) {
      owner.dict().Set(std::string_view(open_.back().key), std::move(value));
    } else {
      owner.list().items.push_back(std::move(value));
    }
    return true;
  }

  JsonReading& reading_;
  const size_t most_;
  std::vector<OpenValue> open_;
  Value root_;
  std::string error_;
};

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void Write(const Value& value) {
    constexpr int kMostLevels = 200;
    if (level_ > kMostLevels) Raise("values are nested deeper than {} levels", kMostLevels);
    if (text_.size() > kMostTextBytes) Raise("a text of more than {} bytes", kMostTextBytes);
    switch (value.kind()) {
      case Value::Kind::kNone:
        text_ += "null";
        break;
      case Value::Kind::kBool:
        text_ += value.boolean() ? "true" : "false";
        break;
      case Value::Kind::kFloat:
        text_ += TextOfNumber(value.real());
        break;
      case Value::Kind::kInt:
      case Value::Kind::kBigInt:
        text_ += TextOf(value);
        break;
      case Value::Kind::kText:
        WriteText(value.text());
        break;
      case Value::Kind::kList:
        if (!value.has_places() || value.list().form == List::Form::kRange) RaiseKind(value);
        WriteList(value.list().items);
        break;
      case Value::Kind::kDict:
        WriteDict(value.dict());
        break;
      default:
        RaiseKind(value);
    }
  }
  std::string& text() { return text_; }

 private:
  [[noreturn]] static void RaiseKind(const Value& value) {
    Raise("Object of type {} is not JSON serializable", TypeName(value));
  }
  static std::string TextOfNumber(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return TextOfReal(value);
  }
  void WriteEscape(uint32_t unit) { text_ += Format("\\u{:04x}", unit); }
  void WriteText(std::string_view text) {
    text_ += '"';
    while (!text.empty()) {
      const Character c = FirstCharacter(text);
      WriteCharacter(c.code_point, text.substr(0, c.bytes));
      text.remove_prefix(c.bytes);
    }
    text_ += '"';
  }
  void WriteCharacter(uint32_t code, std::string_view bytes) {
    constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
    constexpr std::string_view kNames = "\"\\bfnrt";
    if (const size_t at = code < 0x80 ? kShort.find(static_cast<char>(code)) : kShort.npos;
        at != kShort.npos) {
      text_ += '\\';
      text_ += kNames[at];
    } else if (code < 0x20 || (style_.escapes_beyond_ascii && code >= 0x7F && code < 0x10000)) {
      WriteEscape(code);
    } else if (style_.escapes_beyond_ascii && code >= 0x10000) {
      WriteEscape(0xD800 + ((code - 0x10000) >> 10U));
      WriteEscape(0xDC00 + ((code - 0x10000) & 0x3FFU));
    } else {
      text_ += bytes;
    }
  }
  void NewLine() {
    if (!style_.has_lines) return;
    text_ += '\n';
    for (int i = 0; i < level_; ++i) text_ += style_.indent;
  }
  template <class Items, class WriteItem>
  void WriteAll(const Items& items, char begin, char end, WriteItem write) {
    text_ += begin;
    ++level_;
    bool is_first = true;
    for (const auto& item : items) {
      if (!is_first) text_ += style_.behind_item;
      is_first = false;
      NewLine();
      write(item);
    }
    --level_;
    if (!is_first) NewLine();
    text_ += end;
  }
  void WriteList(const std::vector<Value>& items) {
    WriteAll(items, '[', ']', [this](const Value& item) { Write(item); });
  }
  static std::string KeyText(const Value& key) {
    switch (key.kind()) {
      case Value::Kind::kText:
        return key.text();
      case Value::Kind::kNone:
        return "null";
      case Value::Kind::kBool:
        return key.boolean() ? "true" : "false";
      case Value::Kind::kFloat:
        return TextOfNumber(key.real());
      case Value::Kind::kInt:
      case Value::Kind::kBigInt:
        return TextOf(key);
      default:
        Raise("keys must be str, int, float, bool or None, not {}", TypeName(key));
    }
  }
  void WriteDict(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : dict.members()) members.push_back(&member);
    if (style_.sorts_keys) {
      std::ranges::stable_sort(
          members, [](const auto* a, const auto* b) { return IsLess(a->first, b->first); });
    }
    WriteAll(members, '{', '}', [this](const std::pair<Value, Value>* member) {
      WriteText(KeyText(member->first));
      text_ += style_.behind_key;
      Write(member->second);
    });
  }

  const JsonStyle& style_;
  std::string text_;
  int level_ = 0;
};

}  // namespace

Result<Value> ReadJson(std::string_view text, JsonReading& reading) {
  // The library would take a zero byte for the end and read no further.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return Fail(Errc::kInvalidRequest, "not JSON: mistake at byte {}", zero + 1);
  }
  ValueBuilder builder(reading);
  if (!Library::sax_parse(text, &builder)) {
    return Fail(Errc::kInvalidRequest, "{}", builder.error());
  }
  return std::move(builder.root());
}

std::string WriteJson(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.Write(value);
  return std::move(writer.text());
}

}  // namespace moestro::jinja
