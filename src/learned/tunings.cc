// SPDX-License-Identifier: MIT
#include "learned/tunings.h"

#include <limits>
#include <optional>
#include <utility>

#include "base/input_file.h"
#include "base/json.h"
#include "base/text.h"
#include "learned/beside_model.h"

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

Result<PolicySource> PolicySource::Find(std::optional<PolicyChoice> chosen, const std::string& file,
                                        const std::string& model_path) {
  PolicySource source;
  source.chosen_ = std::move(chosen);
  if (source.chosen_) return source;
  source.path_ = file;
  source.remedy_ = "tune again with 'moestro sim --tune', or leave out --policy-file";
  if (source.path_.empty()) {
    source.path_ = TuningBeside(model_path);
    source.remedy_ = "delete it, or name a policy with --policy";
    if (IsAbsent(source.path_)) return source;
  }
  Result<PolicyTuning> tuning = ReadTuning(source.path_);
  if (!tuning) return Fail(tuning.error().code, "{}; {}", tuning.error().message, source.remedy_);
  source.tuning_ = *std::move(tuning);
  return source;
}

Result<PolicyChoice> PolicySource::Choose(const ModelId& model, uint64_t slots) const {
  if (chosen_) return *chosen_;
  if (!tuning_) return PolicyChoice{};
  TRY_STATUS(CheckMadeFor(model, tuning_->model, path_, remedy_));
  return ChoiceFor(*tuning_, slots);
}

namespace {

constexpr JsonFileKind kSweepKind{.format = "moestro sweep", .version = 1, .what = "a sweep"};
constexpr double kMostFigure = std::numeric_limits<double>::max();
constexpr double kMostWhole = 9007199254740992.0;  // 2^53: a JSON number holds it exactly
constexpr size_t kMostSweepSettings = 1001;        // settings of --sweep, and the exact run

Json ToJson(const MeasuredSetting& setting) {
  Json knobs = Json::Object();
  for (const KnobSetting& s : setting.knobs) knobs.Set(s.knob, s.value);
  Json object = Json::Object();
  object.Set("knobs", std::move(knobs))
      .Set("exact", setting.is_exact ? 1 : 0)
      .Set("kl_mean", setting.kl_mean)
      .Set("kl_se", setting.kl_se ? Json(*setting.kl_se) : Json())
      .Set("decode_tps", setting.decode_tps)
      .Set("bytes_per_token", setting.bytes_per_token)
      .Set("perplexity", setting.perplexity)
      .Set("slots", setting.slots)
      .Set("low_slots", setting.low_slots);
  return object;
}

Result<MeasuredSetting> ParseSetting(JsonView json, size_t index) {
  const std::string where = Format("setting {}", index);
  const Fields fields(json, where);
  MeasuredSetting setting;
  const auto knobs = json.Find("knobs");
  if (!knobs) return Fail(Errc::kInvalidFile, "{} has no 'knobs'", where);
  for (const std::string& key : knobs->keys()) {
    if (key == "cache" || key == "ram") {
      return Fail(Errc::kInvalidFile, "{} sets '{}'; a sweep is of one budget", where, key);
    }
    TRY(std::string value, Fields(*knobs, where).Text(key));
    setting.knobs.push_back({.knob = key, .value = std::move(value)});
  }
  TRY(const uint64_t exact, fields.Count("exact", 0.0, 1.0));
  setting.is_exact = exact == 1;
  TRY(setting.kl_mean, fields.Number("kl_mean", 0.0, kMostFigure));
  TRY(setting.kl_se, fields.NumberIfAny("kl_se", 0.0, kMostFigure));
  TRY(setting.decode_tps, fields.Number("decode_tps", 0.0, kMostFigure));
  TRY(setting.bytes_per_token, fields.Number("bytes_per_token", 0.0, kMostFigure));
  TRY(setting.perplexity, fields.Number("perplexity", 1.0, kMostFigure));
  TRY(setting.slots, fields.Count("slots", 1.0, kMostWhole));
  TRY(setting.low_slots, fields.Count("low_slots", 0.0, kMostWhole));
  return setting;
}

Status ParseSweepFile(JsonView json, StoredSweep& sweep) {
  const auto budget = json.Find("budget");
  if (!budget) return Fail(Errc::kInvalidFile, "it has no 'budget'");
  const Fields fields(*budget, "the budget");
  TRY(sweep.ram_bytes, fields.Count("ram_bytes", 0.0, kMostWhole));
  TRY(sweep.expert_bytes, fields.Count("expert_bytes", 1.0, kMostWhole));
  const auto settings = json.Find("settings");
  if (settings && settings->size() > kMostSweepSettings) {
    return Fail(Errc::kInvalidFile, "it has {} settings, more than {}", settings->size(),
                kMostSweepSettings);
  }
  for (size_t i = 0; settings && settings->At(i); ++i) {
    TRY(MeasuredSetting setting, ParseSetting(*settings->At(i), i));
    sweep.settings.push_back(std::move(setting));
  }
  if (sweep.settings.empty()) return Fail(Errc::kInvalidFile, "it has no 'settings'");
  return {};
}

}  // namespace

Status WriteSweep(const OutputPath& path, const StoredSweep& sweep) {
  Json budget = Json::Object();
  budget.Set("ram_bytes", sweep.ram_bytes).Set("expert_bytes", sweep.expert_bytes);
  Json settings = Json::Array();
  for (const MeasuredSetting& setting : sweep.settings) settings.Push(ToJson(setting));
  Json json = BeginJsonFile(kSweepKind, sweep.model);
  json.Set("budget", std::move(budget)).Set("settings", std::move(settings));
  return WriteJsonFile(path, json);
}

Result<StoredSweep> ReadSweep(const std::string& path) {
  StoredSweep sweep;
  TRY_STATUS(ReadJsonFile(path, kSweepKind, [&sweep](JsonView json, ModelId model) {
    sweep.model = std::move(model);
    return ParseSweepFile(json, sweep);
  }));
  return sweep;
}

Result<StoredSweep> ReadSweepFor(const ModelId& model, const std::string& path) {
  TRY(StoredSweep sweep, ReadSweep(path));
  TRY_STATUS(CheckMadeFor(model, sweep.model, path, "run 'moestro eval --sweep ... -o' again"));
  return sweep;
}

}  // namespace moestro
