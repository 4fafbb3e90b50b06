// SPDX-License-Identifier: MIT
#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "base/result.h"

namespace moestro {
namespace {

using Value = nlohmann::ordered_json;

const Value& ValueOf(const void* value) { return *static_cast<const Value*>(value); }

// A text that is written as it is: a whole number beyond 64 bits, or Json::Verbatim(). The
// library's kind for bytes holds such a text, since JSON text has no bytes.
Value AsWritten(std::string_view text) {
  return Value::binary(std::vector<uint8_t>(text.begin(), text.end()));
}

std::string_view WrittenText(const Value& value) {
  const auto& bytes = value.get_binary();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool IsWrittenNumber(const Value& value) {
  if (!value.is_binary()) return false;
  const char first = WrittenText(value).front();
  return first == '-' || (first >= '0' && first <= '9');
}

bool HasWrittenText(const Value& value) {
  if (value.is_structured()) return std::ranges::any_of(value, HasWrittenText);
  return value.is_binary();
}

// Writes trees that hold such text, in the library's form.
class TreeWriter {
 public:
  explicit TreeWriter(int indent) : indent_(indent) {}

  void Write(const Value& value) {
    if (value.is_binary()) {
      text_ += WrittenText(value);
    } else if (value.is_object()) {
      WriteAll('{', value.get_ref<const Value::object_t&>(), '}', [this](const auto& member) {
        text_ += Scalar(Value(member.first)) + (indent_ > 0 ? ": " : ":");
        Write(member.second);
      });
    } else if (value.is_array()) {
      WriteAll('[', value.get_ref<const Value::array_t&>(), ']',
               [this](const Value& item) { Write(item); });
    } else {
      text_ += Scalar(value);
    }
  }
  std::string& text() { return text_; }

 private:
  static std::string Scalar(const Value& value) {
    return value.dump(-1, ' ', false, Value::error_handler_t::replace);
  }
  template <class Items, class WriteItem>
  void WriteAll(char begin, const Items& items, char end, WriteItem write) {
    text_ += begin;
    ++level_;
    bool is_first = true;
    for (const auto& item : items) {
      if (!is_first) text_ += ',';
      is_first = false;
      NewLine();
      write(item);
    }
    --level_;
    if (!items.empty()) NewLine();
    text_ += end;
  }
  void NewLine() {
    if (indent_ > 0) text_ += '\n' + std::string(static_cast<size_t>(indent_ * level_), ' ');
  }

  const int indent_;
  int level_ = 0;
  std::string text_;
};

// Builds a value from the library parser's events. The library's own builder searches for each new
// key among all before it, which takes the square of their number.
class TreeBuilder final : public nlohmann::json_sax<Value> {
 public:
  explicit TreeBuilder(size_t most_values) : most_values_(most_values) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  // Digits alone are a whole number, of any length.
  bool number_float(number_float_t value, const string_t& digits) override {
    const bool is_whole = digits.find_first_of(".eE") == string_t::npos;
    return is_whole ? Add(AsWritten(digits)) : Add(value);
  }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_object(size_t) override { return Open(); }
  bool start_array(size_t) override { return Open(); }
  bool key(string_t& value) override {
    open_.back().keys.push_back(std::move(value));
    return true;
  }
  bool end_object() override {
    Value object = ObjectOf(open_.back());
    return Close(std::move(object));
  }
  bool end_array() override { return Close(Value(std::move(open_.back().values))); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    constexpr int kFirstOutOfRange = 400;
    if (error.id >= kFirstOutOfRange)
      error_ = "JSON with a number that is too large";
    else
      error_ = Format("not JSON: mistake at byte {}", position);
    return false;
  }

  Value& root() { return root_; }
  const std::string& error() const { return error_; }

 private:
  struct Level {
    std::vector<std::string> keys;  // as many as values, for an object
    Value::array_t values;
  };

  bool Add(Value value) {
    if (n_values_++ == most_values_) {
      error_ = Format("JSON with more than {} values", most_values_);
      return false;
    }
    Place(std::move(value));
    return true;
  }
  void Place(Value value) {
    if (open_.empty())
      root_ = std::move(value);
    else
      open_.back().values.push_back(std::move(value));
  }
  // The library copies, prints and compares by recursion, so depth is stack.
  bool Open() {
    if (open_.size() == Json::kMaxDepth) {
      error_ = Format("JSON nested deeper than {} levels", Json::kMaxDepth);
      return false;
    }
    if (n_values_++ == most_values_) {
      error_ = Format("JSON with more than {} values", most_values_);
      return false;
    }
    open_.emplace_back();
    return true;
  }
  bool Close(Value value) {
    open_.pop_back();
    Place(std::move(value));
    return true;
  }

  // A repeated key keeps its first place and takes its last value.
  static Value ObjectOf(Level& level) {
    const std::vector<std::string>& keys = level.keys;
    std::vector<size_t> order(keys.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, [&](size_t a, size_t b) {
      const int compared = keys[a].compare(keys[b]);
      return compared != 0 ? compared < 0 : a < b;
    });
    std::vector<bool> is_again(keys.size());
    size_t first = 0;
    for (size_t i = 1; i < order.size(); ++i) {
      if (keys[order[i]] != keys[order[first]]) {
        first = i;
        continue;
      }
      is_again[order[i]] = true;
      level.values[order[first]] = std::move(level.values[order[i]]);
    }
    Value object = Value::object();
    Value::object_t::Container& members = object.get_ref<Value::object_t&>();
    members.reserve(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!is_again[i]) members.emplace_back(std::move(level.keys[i]), std::move(level.values[i]));
    }
    return object;
  }

  const size_t most_values_;
  size_t n_values_ = 0;
  std::vector<Level> open_;
  Value root_;
  std::string error_;
};

// Reads a text for the parser. The text ends early when the limit fails: a string of many MB is one
// step of the parser.
class LimitedText {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LimitedText(std::string_view text, const WorkLimit& limit)
      : at_(text.data()), end_(at_ + text.size()), limit_(&limit) {
    stop_ = at_ + std::min(kStep, end_ - at_);
  }

  reference operator*() const { return *at_; }
  LimitedText& operator++() {
    if (++at_ == stop_) GoOn();
    return *this;
  }
  bool operator==(const LimitedText& other) const { return at_ == other.at_; }

 private:
  static constexpr std::ptrdiff_t kStep = std::ptrdiff_t{64} << 10;

  void GoOn() {
    if (!limit_->Spend(kStep)) at_ = end_;
    stop_ = at_ + std::min(kStep, end_ - at_);
  }

  const char* at_;
  const char* end_;
  const char* stop_ = nullptr;  // place of the limit's next check
  const WorkLimit* limit_;
};

}  // namespace

struct Json::Impl {
  Value value;
};

Json::Json(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Json::Json() : impl_(std::make_unique<Impl>()) {}
Json::Json(bool value) : impl_(std::make_unique<Impl>(value)) {}
Json::Json(double value) : impl_(std::make_unique<Impl>(value)) {}
Json::Json(std::string_view value) : impl_(std::make_unique<Impl>(std::string(value))) {}
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json Json::FromSigned(int64_t value) { return Json(std::make_unique<Impl>(value)); }
Json Json::FromUnsigned(uint64_t value) { return Json(std::make_unique<Impl>(value)); }
Json Json::Object() { return Json(std::make_unique<Impl>(Value::object())); }
Json Json::Array() { return Json(std::make_unique<Impl>(Value::array())); }

Json Json::Array(std::span<const float> numbers) {
  Json array = Array();
  for (const float number : numbers) array.impl_->value.push_back(number);
  return array;
}

Json Json::Array(std::span<const int32_t> numbers) {
  Json array = Array();
  for (const int32_t number : numbers) array.impl_->value.push_back(number);
  return array;
}

Json Json::Verbatim(std::string_view text) {
  std::string compact;
  bool is_in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') is_in_string = !is_in_string;
    if (!is_in_string && std::string_view(" \t\r\n").contains(c)) continue;
    compact += c;
    if (is_in_string && c == '\\') compact += text[++i];
  }
  CHECK(!compact.empty() && !is_in_string);
  return Json(std::make_unique<Impl>(AsWritten(compact)));
}

bool Json::IsJson(std::string_view text) { return !text.contains('\0') && Value::accept(text); }

Result<Json> Json::Parse(std::string_view text, size_t most_values, const WorkLimit& limit) {
  // The library would take a zero byte for the end and read no further.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return Fail(Errc::kInvalidRequest, "not JSON: mistake at byte {}", zero + 1);
  }
  TreeBuilder builder(most_values);
  const LimitedText end(text.substr(text.size()), limit);
  const bool is_json = Value::sax_parse(LimitedText(text, limit), end, &builder);
  TRY_STATUS(limit.status());  // a text that ended early may be JSON, too
  if (!is_json) return Fail(Errc::kInvalidRequest, "{}", builder.error());
  return Json(std::make_unique<Impl>(std::move(builder.root())));
}

Json& Json::Set(std::string_view key, Json value) {
  CHECK(impl_->value.is_object());
  impl_->value[std::string(key)] = std::move(value.impl_->value);
  return *this;
}

Json& Json::Push(Json value) {
  CHECK(impl_->value.is_array());
  impl_->value.push_back(std::move(value.impl_->value));
  return *this;
}

JsonView Json::view() const { return JsonView(&impl_->value); }

std::optional<JsonView> JsonView::Find(std::string_view key) const {
  const Value& value = ValueOf(value_);
  if (!value.is_object()) return std::nullopt;
  const auto found = value.find(std::string(key));
  if (found == value.end()) return std::nullopt;
  return JsonView(&*found);
}

std::optional<JsonView> JsonView::At(size_t index) const {
  const Value& value = ValueOf(value_);
  if (!value.is_array() || index >= value.size()) return std::nullopt;
  return JsonView(&value[index]);
}

JsonKind JsonView::kind() const {
  switch (ValueOf(value_).type()) {
    case Value::value_t::boolean:
      return JsonKind::kBoolean;
    case Value::value_t::number_integer:
    case Value::value_t::number_unsigned:
    case Value::value_t::number_float:
      return JsonKind::kNumber;
    case Value::value_t::string:
      return JsonKind::kText;
    case Value::value_t::array:
      return JsonKind::kArray;
    case Value::value_t::object:
      return JsonKind::kObject;
    case Value::value_t::binary:
      if (IsWrittenNumber(ValueOf(value_))) return JsonKind::kNumber;
      break;
    case Value::value_t::null:
    case Value::value_t::discarded:
      break;
  }
  return JsonKind::kNull;
}

std::optional<bool> JsonView::boolean() const {
  const Value& value = ValueOf(value_);
  if (!value.is_boolean()) return std::nullopt;
  return value.get<bool>();
}

std::optional<int64_t> JsonView::integer() const {
  const Value& value = ValueOf(value_);
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (!std::in_range<int64_t>(number)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  constexpr double kFirstInexact = 9007199254740992.0;  // 2^53
  const auto number = value.get<double>();
  if (std::trunc(number) != number || std::abs(number) >= kFirstInexact) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::optional<double> JsonView::number() const {
  const Value& value = ValueOf(value_);
  if (IsWrittenNumber(value)) {
    double number = 0.0;
    const std::string_view digits = WrittenText(value);
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return number;
  }
  if (!value.is_number()) return std::nullopt;
  return value.get<double>();
}

std::optional<std::string> JsonView::text() const {
  const Value& value = ValueOf(value_);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

std::vector<std::pair<std::string_view, JsonView>> JsonView::members() const {
  std::vector<std::pair<std::string_view, JsonView>> members;
  const Value& value = ValueOf(value_);
  if (!value.is_object()) return members;
  for (const auto& [key, member] : value.get_ref<const Value::object_t&>()) {
    members.emplace_back(key, JsonView(&member));
  }
  return members;
}

std::vector<std::string> JsonView::keys() const {
  std::vector<std::string> keys;
  const Value& value = ValueOf(value_);
  if (!value.is_object()) return keys;
  for (const auto& [key, member] : value.items()) keys.push_back(key);
  return keys;
}

size_t JsonView::size() const {
  const Value& value = ValueOf(value_);
  return value.is_structured() ? value.size() : 0;
}

std::string JsonView::Dump(int indent) const {
  const Value& value = ValueOf(value_);
  if (HasWrittenText(value)) {
    TreeWriter writer(indent);
    writer.Write(value);
    return std::move(writer.text());
  }
  return value.dump(indent > 0 ? indent : -1, ' ', false, Value::error_handler_t::replace);
}

Json JsonView::Copy() const { return Json(std::make_unique<Json::Impl>(ValueOf(value_))); }

}  // namespace moestro
