// SPDX-License-Identifier: MIT
#include "learned/tuning_file.h"

#include <optional>
#include <utility>

#include "base/format.h"
#include "base/json.h"
#include "learned/json_fields.h"

namespace moestro {
namespace {

constexpr JsonFileKind kTuningKind{
    .format = "moestro policy", .version = 1, .what = "a policy's settings"};
constexpr double kMostSlots = 1e9;

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

Result<TunedSize> ParseSize(JsonView json, size_t index) {
  const Fields fields(json, Format("size {}", index));
  TunedSize size;
  TRY(size.slots, fields.Count("slots", 1.0, kMostSlots));
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

Status ParseSizes(JsonView json, PolicyTuning& tuning) {
  const auto sizes = json.Find("sizes");
  for (size_t i = 0; sizes && sizes->At(i); ++i) {
    TRY(TunedSize size, ParseSize(*sizes->At(i), i));
    tuning.sizes.push_back(std::move(size));
  }
  if (tuning.sizes.empty()) return Fail(Errc::kInvalidFile, "it has no 'sizes'");
  return {};
}

}  // namespace

Status WriteTuning(const OutputPath& path, const PolicyTuning& tuning) {
  Json sizes = Json::Array();
  for (const TunedSize& size : tuning.sizes) sizes.Push(ToJson(size));
  Json json = BeginJsonFile(kTuningKind, tuning.model);
  json.Set("sizes", std::move(sizes));
  return WriteJsonFile(path, json);
}

Result<PolicyTuning> ReadTuning(const std::string& path) {
  PolicyTuning tuning;
  TRY_STATUS(ReadJsonFile(path, kTuningKind, [&tuning](JsonView json, ModelId model) {
    tuning.model = std::move(model);
    return ParseSizes(json, tuning);
  }));
  return tuning;
}

}  // namespace moestro
