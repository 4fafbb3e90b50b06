// SPDX-License-Identifier: MIT
// The fields of an object in a client's body, which is not trusted. null is the same as absent. A
// field of a wrong kind or range is a 400 that names the field, the expected value and the value
// that came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_error.h"
#include "base/json.h"
#include "base/work_limit.h"
#include "core/ids.h"

namespace moestro {

struct FieldRange {
  double least = -std::numeric_limits<float>::max();
  double most = std::numeric_limits<float>::max();
};

struct IntegerRange {
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
};

// A value for a message: short, one line, printable.
std::string ShownValue(JsonView value);

// The 400 for the field `where`, whose value is not as `wanted` describes.
[[nodiscard]] std::unexpected<ApiError> WrongValue(std::string where, std::string_view wanted,
                                                   JsonView value);

// 400: the body is not UTF-8, is not JSON, or has more values than any context has tokens, or the
// limit's time is used up. 503: the server is going down.
ApiResult<Json> ParseBody(std::string_view body, const WorkLimit& limit = {});
// An array of ids below n_vocab; `where` names the array in messages.
ApiResult<std::vector<Token>> ReadTokenIds(JsonView array, const std::string& where,
                                           uint32_t n_vocab);

class BodyFields {
 public:
  // `where`: the object's path in the body, "messages[2]"; empty: the object is the body. 400 if
  // the value is no object.
  static ApiResult<BodyFields> Of(JsonView value, std::string where);

  std::optional<JsonView> Find(std::string_view key);
  ApiResult<std::optional<bool>> Boolean(std::string_view key);
  ApiResult<std::optional<double>> Number(std::string_view key, FieldRange range);
  ApiResult<std::optional<int64_t>> Integer(std::string_view key, IntegerRange range);
  ApiResult<std::optional<std::string>> Text(std::string_view key);
  ApiResult<std::optional<JsonView>> Array(std::string_view key);
  ApiResult<std::optional<JsonView>> Object(std::string_view key);
  ApiResult<std::optional<BodyFields>> Fields(std::string_view key);
  // 400 if the field is absent or empty.
  ApiResult<std::string> NeededText(std::string_view key);
  // 400 if the field is absent.
  ApiResult<JsonView> NeededArray(std::string_view key);

  // "messages[2].role".
  std::string Name(std::string_view key) const;
  std::string Name(std::string_view key, size_t index) const;
  const std::string& where() const { return where_; }
  // The object's keys that no method has read, printable; some tens at most.
  std::vector<std::string> Unasked() const;

 private:
  BodyFields(JsonView object, std::string where) : object_(object), where_(std::move(where)) {}

  JsonView object_;
  std::string where_;
  std::vector<std::string> asked_;
};

}  // namespace moestro
