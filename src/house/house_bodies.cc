// SPDX-License-Identifier: MIT
#include "house/house_bodies.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "api/server_bodies.h"
#include "base/text.h"
#include "serve/metrics.h"

namespace moestro {
namespace {

// llama-server's words.
std::string_view StatusOf(HouseState state) {
  switch (state) {
    case HouseState::kReady:
      return "loaded";
    case HouseState::kStarting:
    case HouseState::kWaiting:
      return "loading";
    default:
      return "unloaded";
  }
}

// A copy of an object of JSON, or an empty one.
Json Copy(const std::string& text) {
  Result<Json> json = Json::Parse(text);
  const bool is_object = json && json->view().kind() == JsonKind::kObject;
  return is_object ? *std::move(json) : Json::Object();
}

void AddHouse(const ModelReport& report, Json& json) {
  Json status = Json::Object();
  status.Set("value", StatusOf(report.state));
  json.Set("loaded", report.state == HouseState::kReady).Set("status", std::move(status));
  if (report.needs) {
    Json needs = Json::Object();
    needs.Set("smallest", report.needs->smallest).Set("best", report.needs->best);
    json.Set("needs", std::move(needs));
  }
  if (report.bytes > 0) json.Set("ram", report.bytes);
  if (!report.error.empty()) json.Set("error", report.error);
}

Json EntryOf(const ModelReport& report) {
  Json json = Copy(report.model);
  if (json.view().size() == 0) {
    json.Set("id", report.name).Set("object", "model").Set("created", 0).Set("owned_by", "moestro");
  }
  AddHouse(report, json);
  return json;
}

Json TagOf(const ModelReport& report) {
  Json json = Copy(report.tag);
  if (json.view().size() == 0) {
    json.Set("name", report.name).Set("model", report.name).Set("size", 0).Set("digest", "");
  }
  AddHouse(report, json);
  return json;
}

std::string ListOf(std::string_view key, Json list) {
  return Json::Object().Set(key, std::move(list)).Dump();
}

// A value of a label.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

template <class Value>
void AddFamily(std::span<const ModelReport> reports, std::string_view name, std::string_view help,
               std::string_view type, const Value& value, MetricsWriter& writer) {
  writer.Family(name, help, type);
  for (const ModelReport& report : reports) {
    writer.Value(name, Format("{{model=\"{}\"}}", Escaped(report.name)),
                 static_cast<double>(value(report)));
  }
}

void AddCount(std::string_view name, std::string_view help, uint64_t count, MetricsWriter& writer) {
  writer.Family(name, help, "counter");
  writer.Value(name, "", static_cast<double>(count));
}

}  // namespace

std::string HouseModelBody(const ModelReport& report) { return EntryOf(report).Dump(); }

std::string HouseModelsBody(std::span<const ModelReport> reports) {
  Json data = Json::Array();
  for (const ModelReport& report : reports) data.Push(EntryOf(report));
  return Json::Object().Set("object", "list").Set("data", std::move(data)).Dump();
}

std::string HouseTagsBody(std::span<const ModelReport> reports) {
  Json models = Json::Array();
  for (const ModelReport& report : reports) {
    if (report.error.empty()) models.Push(TagOf(report));
  }
  return ListOf("models", std::move(models));
}

std::string HouseRunningBody(std::span<const ModelReport> reports, int64_t unix_seconds) {
  Json models = Json::Array();
  for (const ModelReport& report : reports) {
    if (report.state != HouseState::kReady) continue;
    Json json = TagOf(report);
    constexpr double kMostSeconds = 1e10;
    const auto seconds =
        static_cast<int64_t>(std::ceil(std::min(report.expires_in.value_or(0.0), kMostSeconds)));
    json.Set("expires_at",
             report.expires_in ? UtcTime(unix_seconds + seconds) : "2318-01-01T00:00:00Z")
        .Set("size", report.bytes)
        .Set("size_vram", 0);
    models.Push(std::move(json));
  }
  return ListOf("models", std::move(models));
}

std::string HouseUnloadedBody(const std::string& name, bool is_chat, int64_t unix_seconds) {
  Json json = Json::Object();
  json.Set("model", name).Set("created_at", UtcTime(unix_seconds));
  if (is_chat) {
    Json message = Json::Object();
    message.Set("role", "assistant").Set("content", "");
    json.Set("message", std::move(message));
  } else {
    json.Set("response", "");
  }
  return json.Set("done", true).Set("done_reason", "unload").Dump();
}

std::string HouseMetrics(std::span<const ModelReport> reports, const HouseFigures& figures) {
  MetricsWriter writer;
  writer.Gauge("house_budget_bytes", "Memory for the processes of all models.",
               static_cast<double>(figures.budget));
  writer.Gauge("house_held_bytes", "Budgets of the processes that run, those that end among them.",
               static_cast<double>(figures.held));
  AddFamily(
      reports, "house_model_bytes", "Budget of the model's process; 0: it is not loaded.", "gauge",
      [](const ModelReport& r) { return r.bytes; }, writer);
  AddFamily(
      reports, "house_model_loaded", "Whether the model answers at once.", "gauge",
      [](const ModelReport& r) { return r.state == HouseState::kReady ? 1 : 0; }, writer);
  AddFamily(
      reports, "house_model_running", "Requests that the model computes or that wait for it.",
      "gauge", [](const ModelReport& r) { return r.running; }, writer);
  AddFamily(
      reports, "house_model_requests_total", "Requests that went to the model.", "counter",
      [](const ModelReport& r) { return r.requests; }, writer);
  const HouseCounts& counts = figures.counts;
  AddCount("house_loads_total", "Processes started for models.", counts.loads, writer);
  AddCount("house_shrinks_total", "Models that gave memory to others and stayed.", counts.shrinks,
           writer);
  AddCount("house_growths_total", "Models that were started again with more.", counts.growths,
           writer);
  AddCount("house_ends_total", "Models that ended for others, by keep-alive or as asked.",
           counts.ends, writer);
  AddCount("house_deaths_total", "Processes of models that ended by themselves.", counts.deaths,
           writer);
  AddCount("house_refusals_total", "Requests for which there was no room.", counts.refusals,
           writer);
  return writer.Take();
}

}  // namespace moestro
