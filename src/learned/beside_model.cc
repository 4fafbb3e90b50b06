// SPDX-License-Identifier: MIT
#include "learned/beside_model.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <span>

#include "base/input_file.h"
#include "base/number.h"
#include "base/output_file.h"
#include "base/text.h"

namespace moestro {

Status CheckMadeFor(const ModelId& model, const ModelId& made_for, const std::string& path,
                    std::string_view remedy) {
  if (made_for.may_be(model)) return {};
  return Fail(Errc::kInvalidRequest, "{}: made for {}, not for {}; {}", path, made_for.text(),
              model.text(), remedy);
}

namespace {

constexpr uint64_t kMostJsonBytes = kMiB;  // a few hundred are usual
constexpr double kMostVersion = 1e9;
constexpr double kMostModelCount = 4096;  // as in a trace

Result<uint64_t> ParseFingerprint(const std::string& text) {
  uint64_t id = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, id, 16);
  if (error == std::errc{} && stop == end) return id;
  return Fail(Errc::kInvalidFile, "the model's fingerprint '{}' is no hexadecimal number", text);
}

Result<ModelId> ParseModel(JsonView json) {
  const Fields fields(json, "the model");
  ModelId model;
  TRY(model.name, fields.Text("name"));
  TRY(const std::string id, fields.Text("fingerprint"));
  TRY(model.fingerprint, ParseFingerprint(id));
  TRY(const uint64_t layers, fields.Count("layers", 1.0, kMostModelCount));
  TRY(const uint64_t experts, fields.Count("experts", 1.0, kMostModelCount));
  TRY(const uint64_t used, fields.Count("used", 1.0, static_cast<double>(experts)));
  model.shape = {.n_layer = static_cast<uint32_t>(layers),
                 .n_expert = static_cast<uint32_t>(experts),
                 .n_used = static_cast<uint32_t>(used)};
  return model;
}

Status CheckHead(JsonView json, const JsonFileKind& kind) {
  const Fields fields(json, "the file");
  const Result<std::string> format = fields.Text("format");
  if (!format || *format != kind.format) {
    return Fail(Errc::kInvalidFile, "its 'format' is not '{}'", kind.format);
  }
  TRY(const uint64_t version, fields.Count("version", 1.0, kMostVersion));
  if (version <= kind.version) return {};
  return Fail(Errc::kUnsupported, "format {} is newer than the {} that is known here", version,
              kind.version);
}

Result<ModelId> FindModel(JsonView json) {
  const auto model = json.Find("model");
  if (!model) return Fail(Errc::kInvalidFile, "it has no 'model'");
  return ParseModel(*model);
}

}  // namespace

Result<std::string> Fields::Text(std::string_view key) const {
  const auto value = object_.Find(key);
  if (const auto text = value ? value->text() : std::nullopt) return *text;
  return Fail(Errc::kInvalidFile, "{} has no text '{}'", where_, key);
}

Result<double> Fields::Number(std::string_view key, double least, double most) const {
  const auto value = object_.Find(key);
  const auto number = value ? value->number() : std::nullopt;
  if (!number) return Fail(Errc::kInvalidFile, "{} has no number '{}'", where_, key);
  if (*number >= least && *number <= most) return *number;
  return Fail(Errc::kInvalidFile, "{}: '{}' is {}, not from {} to {}", where_, key, *number, least,
              most);
}

Result<std::optional<double>> Fields::NumberIfAny(std::string_view key, double least,
                                                  double most) const {
  const auto value = object_.Find(key);
  if (!value || value->Dump() == "null") return std::optional<double>();
  TRY(const double number, Number(key, least, most));
  return std::optional(number);
}

Result<uint64_t> Fields::Count(std::string_view key, double least, double most) const {
  TRY(const double number, Number(key, least, most));
  if (number == std::floor(number)) return static_cast<uint64_t>(number);
  return Fail(Errc::kInvalidFile, "{}: '{}' is {}, not a whole number", where_, key, number);
}

Json BeginJsonFile(const JsonFileKind& kind) {
  Json json = Json::Object();
  json.Set("format", kind.format).Set("version", kind.version);
  return json;
}

Json BeginJsonFile(const JsonFileKind& kind, const ModelId& model) {
  Json of_model = Json::Object();
  of_model
      .Set("name", model.name)
      // A JSON number would lose digits.
      .Set("fingerprint", Format("{:016x}", model.fingerprint))
      .Set("layers", model.shape.n_layer)
      .Set("experts", model.shape.n_expert)
      .Set("used", model.shape.n_used);
  Json json = BeginJsonFile(kind);
  json.Set("model", std::move(of_model));
  return json;
}

Status WriteJsonFile(const OutputPath& path, const Json& json) {
  const std::string text = json.Dump(2) + "\n";
  TRY(OutputFile file, OutputFile::Create(path));
  TRY_STATUS(file.Write(std::as_bytes(std::span(text))));
  TRY_STATUS(file.Publish());
  file.Keep();
  return {};
}

Status ReadJsonFile(const std::string& path, const JsonFileKind& kind,
                    const std::function<Status(JsonView file)>& parse) {
  const Result<std::string> text = ReadRegularFile(path, kMostJsonBytes);
  if (!text) {
    const Error& why = text.error();
    if (why.code != Errc::kInvalidFile) return std::unexpected(why);
    return Fail(why.code, "{}, which cannot be {}", why.message, kind.what);
  }
  const Result<Json> json = Json::Parse(*text);
  if (!json) return Fail(Errc::kInvalidFile, "{}: {}", path, json.error().message);
  Status status = CheckHead(json->view(), kind);
  if (status) status = parse(json->view());
  if (status) return {};
  return Fail(status.error().code, "{}: {}", path, status.error().message);
}

Status ReadJsonFile(const std::string& path, const JsonFileKind& kind,
                    const std::function<Status(JsonView file, ModelId model)>& parse) {
  return ReadJsonFile(path, kind, [&parse](JsonView file) -> Status {
    TRY(ModelId model, FindModel(file));
    return parse(file, std::move(model));
  });
}

}  // namespace moestro
