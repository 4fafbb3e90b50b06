// SPDX-License-Identifier: MIT
#include "api/body_fields.h"

#include <algorithm>
#include <utility>

#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr size_t kShownBytes = 40;

std::unexpected<ApiError> Absent(std::string where) {
  std::string message = Format("\"{}\" is missing", where);
  return BadRequest(std::move(where), std::move(message));
}

}  // namespace

std::string ShownValue(JsonView value) {
  switch (value.kind()) {
    case JsonKind::kArray:
      return Format("an array of {}", value.size());
    case JsonKind::kObject:
      return "an object";
    case JsonKind::kText:
      return '"' + Printable(*value.text(), kShownBytes) + '"';
    case JsonKind::kNull:
    case JsonKind::kBoolean:
    case JsonKind::kNumber:
      break;
  }
  return value.Dump();
}

std::unexpected<ApiError> WrongValue(std::string where, std::string_view wanted, JsonView value) {
  const std::string subject =
      where.empty() ? std::string("the body") : '"' + Printable(where) + '"';
  std::string message = Format("{} must be {}, not {}", subject, wanted, ShownValue(value));
  return BadRequest(std::move(where), std::move(message));
}

ApiResult<Json> ParseBody(std::string_view body, const WorkLimit& limit) {
  constexpr size_t kMostValues = size_t{1} << 18;
  if (const size_t bad = FindInvalidUtf8(body); bad < body.size())
    return BadRequest("", Format("the body is not UTF-8: byte {}", bad));
  auto json = Json::Parse(body, kMostValues, limit);
  if (const Status status = limit.status(); !status) {
    return std::unexpected(ToApiError(status.error()));
  }
  if (!json) return BadRequest("", Format("the body is {}", json.error().message));
  return *std::move(json);
}

ApiResult<std::vector<Token>> ReadTokenIds(JsonView array, const std::string& where,
                                           uint32_t n_vocab) {
  std::vector<Token> tokens;
  tokens.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const JsonView value = *array.At(i);
    const auto token = value.integer();
    if (!token || *token < 0 || *token >= int64_t{n_vocab}) {
      return WrongValue(Format("{}[{}]", where, i), Format("a token's id, 0 to {}", n_vocab - 1),
                        value);
    }
    tokens.push_back(static_cast<Token>(*token));
  }
  return tokens;
}

ApiResult<BodyFields> BodyFields::Of(JsonView value, std::string where) {
  if (value.kind() != JsonKind::kObject) return WrongValue(std::move(where), "an object", value);
  return BodyFields(value, std::move(where));
}

std::optional<JsonView> BodyFields::Find(std::string_view key) {
  asked_.emplace_back(key);
  const auto value = object_.Find(key);
  if (!value || value->kind() == JsonKind::kNull) return std::nullopt;
  return value;
}

ApiResult<std::optional<bool>> BodyFields::Boolean(std::string_view key) {
  const auto value = Find(key);
  if (!value) return std::nullopt;
  if (value->boolean()) return *value->boolean();
  return WrongValue(Name(key), "true or false", *value);
}

ApiResult<std::optional<double>> BodyFields::Number(std::string_view key, FieldRange range) {
  const auto value = Find(key);
  if (!value) return std::nullopt;
  const auto number = value->number();
  if (number && *number >= range.least && *number <= range.most) return *number;
  const FieldRange any;
  const bool is_bounded = range.least > any.least && range.most < any.most;
  return WrongValue(
      Name(key),
      is_bounded ? Format("a number from {} to {}", range.least, range.most) : "a number", *value);
}

ApiResult<std::optional<int64_t>> BodyFields::Integer(std::string_view key, IntegerRange range) {
  const auto value = Find(key);
  if (!value) return std::nullopt;
  const auto number = value->integer();
  if (number && *number >= range.least && *number <= range.most) return *number;
  const bool is_bounded = range.most < std::numeric_limits<int64_t>::max();
  return WrongValue(Name(key),
                    is_bounded ? Format("a whole number from {} to {}", range.least, range.most)
                               : Format("a whole number from {} on", range.least),
                    *value);
}

ApiResult<std::optional<std::string>> BodyFields::Text(std::string_view key) {
  const auto value = Find(key);
  if (!value) return std::nullopt;
  auto text = value->text();
  if (!text) return WrongValue(Name(key), "a string", *value);
  return *std::move(text);
}

ApiResult<std::optional<JsonView>> BodyFields::Array(std::string_view key) {
  const auto value = Find(key);
  if (value && value->kind() != JsonKind::kArray) return WrongValue(Name(key), "an array", *value);
  return value;
}

ApiResult<std::optional<JsonView>> BodyFields::Object(std::string_view key) {
  const auto value = Find(key);
  if (value && value->kind() != JsonKind::kObject)
    return WrongValue(Name(key), "an object", *value);
  return value;
}

ApiResult<std::optional<BodyFields>> BodyFields::Fields(std::string_view key) {
  const auto value = Find(key);
  if (!value) return std::nullopt;
  TRY(BodyFields fields, Of(*value, Name(key)));
  return fields;
}

ApiResult<std::string> BodyFields::NeededText(std::string_view key) {
  TRY(std::optional<std::string> text, Text(key));
  if (!text) return Absent(Name(key));
  if (text->empty()) return BadRequest(Name(key), Format("\"{}\" must not be empty", Name(key)));
  return *std::move(text);
}

ApiResult<JsonView> BodyFields::NeededArray(std::string_view key) {
  TRY(const std::optional<JsonView> array, Array(key));
  if (!array) return Absent(Name(key));
  return *array;
}

std::string BodyFields::Name(std::string_view key) const {
  return where_.empty() ? std::string(key) : Format("{}.{}", where_, key);
}

std::string BodyFields::Name(std::string_view key, size_t index) const {
  return Format("{}[{}]", Name(key), index);
}

std::vector<std::string> BodyFields::Unasked() const {
  constexpr size_t kMostNamed = 32;
  std::vector<std::string> unasked;
  for (const auto& [key, value] : object_.members()) {
    if (unasked.size() == kMostNamed) break;
    if (std::ranges::find(asked_, key) == asked_.end()) unasked.push_back(Printable(key, 64));
  }
  return unasked;
}

}  // namespace moestro
