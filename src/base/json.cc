// SPDX-License-Identifier: MIT
#include "base/json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"

namespace moestro {
namespace {

using Value = nlohmann::ordered_json;

const Value& ValueOf(const void* value) { return *static_cast<const Value*>(value); }

// Ends a parse from inside the library.
struct TooDeep {};

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

Result<Json> Json::Parse(std::string_view text) {
  // The library copies, prints and compares by recursion, so depth is stack.
  const auto check = [](int depth, Value::parse_event_t event, const Value&) {
    const bool opens =
        event == Value::parse_event_t::object_start || event == Value::parse_event_t::array_start;
    if (opens && depth >= kMaxDepth) throw TooDeep();
    return true;
  };
  try {
    return Json(std::make_unique<Impl>(Value::parse(text, check)));
  } catch (const Value::parse_error& error) {
    return Fail(Errc::kInvalidRequest, "not JSON: mistake at byte {}", error.byte);
  } catch (const Value::out_of_range&) {
    return Fail(Errc::kInvalidRequest, "JSON with a number that is too large");
  } catch (const TooDeep&) {
    return Fail(Errc::kInvalidRequest, "JSON nested deeper than {} levels", kMaxDepth);
  }
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
    default:
      return JsonKind::kNull;
  }
}

std::optional<bool> JsonView::boolean() const {
  const Value& value = ValueOf(value_);
  if (!value.is_boolean()) return std::nullopt;
  return value.get<bool>();
}

std::optional<double> JsonView::number() const {
  const Value& value = ValueOf(value_);
  if (!value.is_number()) return std::nullopt;
  return value.get<double>();
}

std::optional<std::string> JsonView::text() const {
  const Value& value = ValueOf(value_);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

std::vector<std::string> JsonView::keys() const {
  std::vector<std::string> keys;
  const Value& value = ValueOf(value_);
  if (!value.is_object()) return keys;
  for (const auto& [key, member] : value.items()) keys.push_back(key);
  return keys;
}

std::vector<std::pair<std::string, JsonView>> JsonView::members() const {
  std::vector<std::pair<std::string, JsonView>> members;
  const Value& value = ValueOf(value_);
  if (!value.is_object()) return members;
  for (const auto& [key, member] : value.items()) members.emplace_back(key, JsonView(&member));
  return members;
}

size_t JsonView::size() const {
  const Value& value = ValueOf(value_);
  return value.is_structured() ? value.size() : 0;
}

std::string JsonView::Dump(int indent) const {
  return ValueOf(value_).dump(indent > 0 ? indent : -1, ' ', false,
                              Value::error_handler_t::replace);
}

Json JsonView::Copy() const { return Json(std::make_unique<Json::Impl>(ValueOf(value_))); }

}  // namespace moestro
