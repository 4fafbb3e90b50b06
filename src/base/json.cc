// SPDX-License-Identifier: MIT
#include "base/json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"

namespace moestro {

struct Json::Impl {
  nlohmann::ordered_json value;
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
Json Json::Object() { return Json(std::make_unique<Impl>(nlohmann::ordered_json::object())); }
Json Json::Array() { return Json(std::make_unique<Impl>(nlohmann::ordered_json::array())); }

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
  try {
    return Json(std::make_unique<Impl>(nlohmann::ordered_json::parse(text)));
  } catch (const nlohmann::json::parse_error& error) {
    return Fail(Errc::kInvalidRequest, "not JSON: mistake at byte {}", error.byte);
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

std::optional<Json> Json::Find(std::string_view key) const {
  const auto found = impl_->value.find(std::string(key));
  if (!impl_->value.is_object() || found == impl_->value.end()) return std::nullopt;
  return Json(std::make_unique<Impl>(*found));
}

std::optional<Json> Json::At(size_t index) const {
  if (!impl_->value.is_array() || index >= impl_->value.size()) return std::nullopt;
  return Json(std::make_unique<Impl>(impl_->value[index]));
}

std::optional<double> Json::number() const {
  if (!impl_->value.is_number()) return std::nullopt;
  return impl_->value.get<double>();
}

std::optional<std::string> Json::text() const {
  if (!impl_->value.is_string()) return std::nullopt;
  return impl_->value.get<std::string>();
}

std::vector<std::string> Json::keys() const {
  std::vector<std::string> keys;
  if (!impl_->value.is_object()) return keys;
  for (const auto& [key, value] : impl_->value.items()) keys.push_back(key);
  return keys;
}

size_t Json::size() const { return impl_->value.is_structured() ? impl_->value.size() : 0; }

std::string Json::Dump(int indent) const {
  return impl_->value.dump(indent > 0 ? indent : -1, ' ', false,
                           nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace moestro
