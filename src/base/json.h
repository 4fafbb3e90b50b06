// SPDX-License-Identifier: MIT
// JSON values for reports and machine-readable output. The JSON library stays in json.cc.
// A value owns what is in it; moving is cheap, copying is not offered. Not shared between threads.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moestro {

template <class T>
concept JsonInteger = std::integral<T> && !std::same_as<T, bool>;

class Json {
 public:
  Json();  // null
  // Values convert implicitly so that object.Set("tokens", 12) reads as what it is. Strings that
  // are not UTF-8 get U+FFFD in place of the bad bytes; a number that is not finite becomes null.
  Json(bool value);              // NOLINT(google-explicit-constructor)
  Json(double value);            // NOLINT(google-explicit-constructor)
  Json(std::string_view value);  // NOLINT(google-explicit-constructor)
  Json(const std::string& value) : Json(std::string_view(value)) {}  // NOLINT
  Json(const char* value) : Json(std::string_view(value)) {}         // NOLINT
  template <JsonInteger T>
  Json(T value) : Json(Integer(value)) {}  // NOLINT(google-explicit-constructor)

  static Json Object();
  static Json Array();
  static Json Array(std::span<const float> numbers);
  static Json Array(std::span<const int32_t> numbers);
  // kInvalidRequest with the byte position of the first mistake.
  static Result<Json> Parse(std::string_view text);

  Json(Json&& other) noexcept;
  Json& operator=(Json&& other) noexcept;
  ~Json();

  // Keys keep the order in which they were set. REQUIRES: this is an object.
  Json& Set(std::string_view key, Json value);
  // REQUIRES: this is an array.
  Json& Push(Json value);

  // Reading. Each gives nullopt when this is not of that kind, or has no such key or index.
  std::optional<Json> Find(std::string_view key) const;  // a copy of the value
  std::optional<Json> At(size_t index) const;            // a copy of the element
  std::optional<double> number() const;
  std::optional<std::string> text() const;
  std::vector<std::string> keys() const;  // of an object, in order
  size_t size() const;                    // elements or keys, 0 for anything else

  // One line without blanks; with `indent` > 0 one value a line.
  std::string Dump(int indent = 0) const;

 private:
  struct Impl;
  explicit Json(std::unique_ptr<Impl> impl);
  template <JsonInteger T>
  static Json Integer(T value) {
    if constexpr (std::signed_integral<T>)
      return FromSigned(value);
    else
      return FromUnsigned(value);
  }
  static Json FromSigned(int64_t value);
  static Json FromUnsigned(uint64_t value);

  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
