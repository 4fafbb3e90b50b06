// SPDX-License-Identifier: MIT
#include "learned/tuning_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/format.h"
#include "base/json.h"
#include "base/output_file.h"

namespace moestro {
namespace {

constexpr uint64_t kTuningVersion = 1;
constexpr std::string_view kTuningFormat = "moestro policy";
constexpr uint64_t kMostBytes = kMiB;  // a few hundred are usual
constexpr double kMostSlots = 1e9;
constexpr double kMostCount = 4096;  // as in a trace

Json ToJson(const TunedSize& size) {
  Json parameters = Json::Object();
  for (const auto& [name, value] : size.choice.parameters) parameters.Set(name, value);
  Json object = Json::Object();
  object.Set("slots", size.slots)
      .Set("policy", size.choice.name)
      .Set("parameters", std::move(parameters))
      .Set("hit_rate", size.hit_rate)
      .Set("standard_hit_rate", size.standard_hit_rate);
  return object;
}

// One object of the file. Its errors say what is missing where.
class Fields {
 public:
  Fields(JsonView object, std::string where) : object_(object), where_(std::move(where)) {}

  Result<std::string> Text(std::string_view key) const {
    const auto value = object_.Find(key);
    if (const auto text = value ? value->text() : std::nullopt) return *text;
    return Fail(Errc::kInvalidFile, "{} has no text '{}'", where_, key);
  }
  Result<double> Number(std::string_view key, double least, double most) const {
    const auto value = object_.Find(key);
    const auto number = value ? value->number() : std::nullopt;
    if (!number) return Fail(Errc::kInvalidFile, "{} has no number '{}'", where_, key);
    if (*number >= least && *number <= most) return *number;
    return Fail(Errc::kInvalidFile, "{}: '{}' is {}, not from {} to {}", where_, key, *number,
                least, most);
  }
  Result<uint64_t> Count(std::string_view key, double most) const {
    TRY(const double number, Number(key, 1.0, most));
    if (number == std::floor(number)) return static_cast<uint64_t>(number);
    return Fail(Errc::kInvalidFile, "{}: '{}' is {}, not a whole number", where_, key, number);
  }

 private:
  JsonView object_;
  std::string where_;
};

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
  TRY(const uint64_t layers, fields.Count("layers", kMostCount));
  TRY(const uint64_t experts, fields.Count("experts", kMostCount));
  TRY(const uint64_t used, fields.Count("used", static_cast<double>(experts)));
  model.shape = {.n_layer = static_cast<uint32_t>(layers),
                 .n_expert = static_cast<uint32_t>(experts),
                 .n_used = static_cast<uint32_t>(used)};
  return model;
}

Result<TunedSize> ParseSize(JsonView json, size_t index) {
  const Fields fields(json, Format("size {}", index));
  TunedSize size;
  TRY(size.slots, fields.Count("slots", kMostSlots));
  TRY(size.choice.name, fields.Text("policy"));
  TRY(size.hit_rate, fields.Number("hit_rate", 0.0, 1.0));
  TRY(size.standard_hit_rate, fields.Number("standard_hit_rate", 0.0, 1.0));
  const auto parameters = json.Find("parameters");
  for (const std::string& key : parameters ? parameters->keys() : std::vector<std::string>{}) {
    const auto value = parameters->Find(key)->number();
    if (!value) return Fail(Errc::kInvalidFile, "size {}: '{}' is no number", index, key);
    size.choice.parameters.emplace(key, *value);
  }
  if (const auto policy = MakePolicy(size.choice); !policy) {
    return Fail(Errc::kInvalidFile, "size {}: {}", index, policy.error().message);
  }
  return size;
}

Result<PolicyTuning> Parse(const std::string& text) {
  Result<Json> parsed = Json::Parse(text);
  if (!parsed) return Fail(Errc::kInvalidFile, "{}", parsed.error().message);
  const Json json = *std::move(parsed);
  const Fields fields(json.view(), "the file");
  const Result<std::string> format = fields.Text("format");
  if (!format || *format != kTuningFormat) {
    return Fail(Errc::kInvalidFile, "its 'format' is not '{}'", kTuningFormat);
  }
  TRY(const uint64_t version, fields.Count("version", kMostSlots));
  if (version > kTuningVersion) {
    return Fail(Errc::kUnsupported, "format {} is newer than the {} that is known here", version,
                kTuningVersion);
  }
  const auto model = json.Find("model");
  const auto sizes = json.Find("sizes");
  if (!model) return Fail(Errc::kInvalidFile, "it has no 'model'");
  PolicyTuning tuning;
  TRY(tuning.model, ParseModel(*model));
  for (size_t i = 0; sizes && sizes->At(i); ++i) {
    TRY(TunedSize size, ParseSize(*sizes->At(i), i));
    tuning.sizes.push_back(std::move(size));
  }
  if (tuning.sizes.empty()) return Fail(Errc::kInvalidFile, "it has no 'sizes'");
  return tuning;
}

Result<std::string> ReadSmallFile(const std::string& path) {
  std::error_code error;
  // A pipe would wait for a writer, a folder reads as nothing.
  if (!std::filesystem::is_regular_file(path, error)) {
    return Fail(Errc::kIo, "cannot read {}: {}", path,
                error ? error.message() : "it is not a file");
  }
  std::ifstream file(path, std::ios::binary);
  const uint64_t size = std::filesystem::file_size(path, error);
  std::string text(error ? 0 : std::min(size, kMostBytes) + 1, '\0');
  if (!file) return Fail(Errc::kIo, "cannot open {}: {}", path, std::strerror(errno));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return Fail(Errc::kIo, "cannot read {}: {}", path, std::strerror(errno));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() <= kMostBytes) return text;
  return Fail(Errc::kInvalidFile, "{}: more than {} cannot be a policy's settings", path,
              FormatBytes(kMostBytes));
}

}  // namespace

Status WriteTuning(const std::string& path, const PolicyTuning& tuning) {
  Json model = Json::Object();
  model
      .Set("name", tuning.model.name)
      // A JSON number would lose digits.
      .Set("fingerprint", Format("{:016x}", tuning.model.fingerprint))
      .Set("layers", tuning.model.shape.n_layer)
      .Set("experts", tuning.model.shape.n_expert)
      .Set("used", tuning.model.shape.n_used);
  Json sizes = Json::Array();
  for (const TunedSize& size : tuning.sizes) sizes.Push(ToJson(size));
  Json json = Json::Object();
  json.Set("format", kTuningFormat)
      .Set("version", kTuningVersion)
      .Set("model", std::move(model))
      .Set("sizes", std::move(sizes));
  const std::string text = json.Dump(2) + "\n";
  TRY(OutputFile file, OutputFile::Create(path));
  TRY_STATUS(file.Write(std::as_bytes(std::span(text))));
  TRY_STATUS(file.Publish());
  file.Keep();
  return {};
}

Result<PolicyTuning> ReadTuning(const std::string& path) {
  TRY(const std::string text, ReadSmallFile(path));
  Result<PolicyTuning> tuning = Parse(text);
  if (tuning) return tuning;
  return Fail(tuning.error().code, "{}: {}", path, tuning.error().message);
}

}  // namespace moestro
