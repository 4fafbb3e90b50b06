// SPDX-License-Identifier: MIT
#include "learned/sweep_file.h"

#include <limits>
#include <optional>
#include <utility>

#include "base/format.h"
#include "base/json.h"
#include "learned/beside_model.h"
#include "learned/json_fields.h"

namespace moestro {
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
