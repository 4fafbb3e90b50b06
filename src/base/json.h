// SPDX-License-Identifier: MIT
// JSON values for reports, machine-readable output and small files. The JSON library stays in
// json.cc. Not shared between threads.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/counters.h"
#include "base/result.h"
#include "base/work_limit.h"

namespace moestro {

template <class T>
concept JsonInteger = std::integral<T> && !std::same_as<T, bool>;

class Json;

enum class JsonKind : uint8_t { kNull, kBoolean, kNumber, kText, kArray, kObject };

// A value inside a Json, for reading; valid as long as that Json lives and is not changed. Cheap to
// copy.
class JsonView {
 public:
  JsonKind kind() const;
  // Each returns nullopt when this value has another kind, or no such key or index. Find() takes
  // time in proportion to the object's keys; to find many keys, use members().
  std::optional<JsonView> Find(std::string_view key) const;
  std::optional<JsonView> At(size_t index) const;
  std::optional<bool> boolean() const;
  std::optional<double> number() const;    // Dump() gives integers of any length exactly
  std::optional<int64_t> integer() const;  // a number that is whole and exactly known: 3, 3.0
  std::optional<std::string> text() const;
  // Keys and values of an object, in order; the keys live as long as this view's Json. Empty for
  // other kinds.
  std::vector<std::pair<std::string_view, JsonView>> members() const;
  std::vector<std::string> keys() const;  // keys of an object, in order
  size_t size() const;                    // elements or keys, 0 for anything else

  // One line without blanks; with `indent` > 0 one value a line.
  std::string Dump(int indent = 0) const;
  Json Copy() const;

 private:
  friend class Json;
  explicit JsonView(const void* value) : value_(value) {}

  const void* value_;  // the library's
};

// Owns its value; moving is cheap.
class Json {
 public:
  Json();  // null
  // Values convert implicitly, so that object.Set("tokens", 12) needs no cast. Strings that are not
  // UTF-8 get U+FFFD in place of the bad bytes; a number that is not finite becomes null.
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
  // A value that Dump() writes as `text` has it, but for blanks between parts; any depth. Such a
  // value is only to be written and has no members. REQUIRES: IsJson(text).
  static Json Verbatim(std::string_view text);
  // Whether a text is JSON, of any depth and any number of values, but for numbers that are beyond
  // a double's range.
  static bool IsJson(std::string_view text);
  // The most levels of arrays and objects within each other that Parse() accepts.
  static constexpr int kMaxDepth = 64;
  // The last value of a repeated key counts. Takes time in proportion to the text, but for sorting
  // an object's keys. A value takes some 60 bytes of memory beside its text, which may be 20 times
  // the size of the text ("[[],[],..."): `most_values` bounds that for texts that are not trusted.
  // kInvalidRequest with the byte position of the first mistake; for deeper nesting; for more
  // values; for a number beyond a double's range. Errors of the limit.
  static Result<Json> Parse(std::string_view text, size_t most_values = SIZE_MAX,
                            const WorkLimit& limit = {});

  Json(Json&& other) noexcept;
  Json& operator=(Json&& other) noexcept;
  ~Json();

  // Keys keep the order in which they were set. REQUIRES: this Json is an object.
  Json& Set(std::string_view key, Json value);
  // REQUIRES: this is an array.
  Json& Push(Json value);

  // Reading, as JsonView does.
  JsonView view() const;
  std::optional<JsonView> Find(std::string_view key) const { return view().Find(key); }
  std::optional<JsonView> At(size_t index) const { return view().At(index); }
  std::optional<bool> boolean() const { return view().boolean(); }
  std::optional<double> number() const { return view().number(); }
  std::optional<int64_t> integer() const { return view().integer(); }
  std::optional<std::string> text() const { return view().text(); }
  std::vector<std::string> keys() const { return view().keys(); }
  size_t size() const { return view().size(); }
  std::string Dump(int indent = 0) const { return view().Dump(indent); }

 private:
  friend class JsonView;
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

// Structs of counters as JSON.

// Sets a key for each row whose text has a name of the kind `name`. REQUIRES: `object` is an
// object.
template <Counted T>
void AddCounters(Json& object, const T& counts,
                 std::string_view CounterText::* name = &CounterText::json) {
  ForEachCounter(counts, name, [&](const std::string& key, const CounterText&, auto number) {
    object.Set(key, number);
  });
}

}  // namespace moestro
