// SPDX-License-Identifier: MIT
#include "api/ollama_bodies.h"

#include <array>
#include <ctime>
#include <utility>

#include "api/body_fields.h"
#include "base/format.h"
#include "base/json.h"

namespace moestro {
namespace {

constexpr const char* kOllamaVersion = "0.12.6";

// "30.5B", "1.4M".
std::string ParameterSize(uint64_t n) {
  constexpr double kBillion = 1e9;
  constexpr double kMillion = 1e6;
  const auto count = static_cast<double>(n);
  return count >= kBillion ? Format("{:.1f}B", count / kBillion)
                           : Format("{:.1f}M", count / kMillion);
}

Json DetailsJson(const ServedModel& model) {
  Json families = Json::Array();
  families.Push(model.architecture);
  Json details = Json::Object();
  details.Set("parent_model", "")
      .Set("format", "gguf")
      .Set("family", model.architecture)
      .Set("families", std::move(families))
      .Set("parameter_size", ParameterSize(model.n_params))
      .Set("quantization_level", model.quantization);
  return details;
}

Json ListedModelJson(const ServedModel& model) {
  Json json = Json::Object();
  json.Set("name", model.id)
      .Set("model", model.id)
      .Set("modified_at", UtcTime(model.created))
      .Set("size", model.size_bytes)
      .Set("digest", model.digest)
      .Set("details", DetailsJson(model));
  return json;
}

std::string ListBody(Json model) {
  Json models = Json::Array();
  models.Push(std::move(model));
  return Json::Object().Set("models", std::move(models)).Dump();
}

}  // namespace

std::string UtcTime(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  std::array<char, 40> text{};
  if (gmtime_r(&time, &parts) == nullptr) return "1970-01-01T00:00:00Z";
  const size_t n = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), n};
}

std::string OllamaErrorBody(const ApiError& error) {
  return Json::Object().Set("error", OllamaErrorMessage(error)).Dump();
}

ApiStatus CheckOllamaShow(std::string_view body, const WorkLimit& limit) {
  TRY(const Json json, ParseBody(body, limit));
  TRY(BodyFields fields, BodyFields::Of(json.view(), ""));
  TRY(const std::optional<std::string> old, fields.Text("name"));
  if (old && !old->empty()) return {};
  TRY(const std::string model, fields.NeededText("model"));
  return {};
}

std::string OllamaVersionBody() { return Json::Object().Set("version", kOllamaVersion).Dump(); }

std::string OllamaTagsBody(const ServedModel& model) { return ListBody(ListedModelJson(model)); }

std::string OllamaRunningBody(const ServedModel& model) {
  Json json = ListedModelJson(model);
  // Never: the model stays loaded.
  json.Set("expires_at", "2318-01-01T00:00:00Z")
      .Set("size_vram", 0)
      .Set("context_length", model.n_ctx);
  return ListBody(std::move(json));
}

std::string OllamaShowBody(const ServedModel& model) {
  Json info = Json::Object();
  info.Set("general.architecture", model.architecture)
      .Set("general.basename", model.id)
      .Set("general.parameter_count", model.n_params)
      .Set(model.architecture + ".context_length", model.n_ctx);
  Json capabilities = Json::Array();
  for (const std::string& capability : model.capabilities) capabilities.Push(capability);
  Json json = Json::Object();
  json.Set("modelfile", Format("FROM {}\n", model.id))
      .Set("parameters", Format("num_ctx {}", model.n_ctx))
      .Set("template", model.chat_template)
      .Set("details", DetailsJson(model))
      .Set("model_info", std::move(info))
      .Set("capabilities", std::move(capabilities))
      .Set("modified_at", UtcTime(model.created));
  return json.Dump();
}

std::string OllamaLoadedBody(const ApiRequest& request, const ReplyHead& head) {
  Json json = Json::Object();
  json.Set("model", head.model).Set("created_at", UtcTime(head.created));
  if (request.kind == ApiKind::kOllamaChat) {
    Json message = Json::Object();
    message.Set("role", "assistant").Set("content", "");
    json.Set("message", std::move(message));
  } else {
    json.Set("response", "");
  }
  json.Set("done", true).Set("done_reason", "load");
  return json.Dump() + (request.stream ? "\n" : "");
}

}  // namespace moestro
