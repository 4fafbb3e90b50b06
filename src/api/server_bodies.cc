// SPDX-License-Identifier: MIT
#include "api/server_bodies.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <ctime>
#include <utility>

#include "api/body_fields.h"
#include "api/writers.h"
#include "base/json.h"
#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

Json ServedModelJson(const ServedModel& model) {
  Json meta = Json::Object();
  meta.Set("n_ctx", model.n_ctx)
      .Set("n_ctx_train", model.n_ctx_train)
      .Set("n_params", model.n_params)
      .Set("size", model.size_bytes)
      .Set("n_vocab", model.n_vocab)
      .Set("architecture", model.architecture)
      .Set("quantization", model.quantization);
  if (model.n_embd > 0) meta.Set("n_embd", model.n_embd).Set("pooling", model.pooling);
  Json json = Json::Object();
  json.Set("id", model.id)
      .Set("object", "model")
      .Set("created", model.created)
      .Set("owned_by", "moestro")
      .Set("type", model.n_embd > 0 ? "embeddings" : "llm")
      .Set("max_model_len", model.n_ctx)  // the name that vLLM and other servers use
      .Set("meta", std::move(meta));
  return json;
}

Json TextsJson(std::span<const std::string> texts) {
  Json array = Json::Array();
  for (const std::string& text : texts) array.Push(text);
  return array;
}

// Writes a piece that is part of a character as its bytes.
Json PieceJson(const std::string& piece) {
  if (FindInvalidUtf8(piece) == piece.size()) return piece;
  Json bytes = Json::Array();
  for (const char byte : piece) bytes.Push(static_cast<uint8_t>(byte));
  return bytes;
}

}  // namespace

std::string ModelBody(const ServedModel& model) { return ServedModelJson(model).Dump(); }

std::string ModelListBody(std::span<const ServedModel> models) {
  Json data = Json::Array();
  for (const ServedModel& model : models) data.Push(ServedModelJson(model));
  return Json::Object().Set("object", "list").Set("data", std::move(data)).Dump();
}

std::string PropertiesBody(const ServedModel& model, const ServerProperties& properties) {
  const SamplingOptions& sampling = properties.defaults;
  Json params = Json::Object();
  params.Set("temperature", NumberJson(sampling.temp))
      .Set("top_k", sampling.top_k)
      .Set("top_p", NumberJson(sampling.top_p))
      .Set("min_p", NumberJson(sampling.min_p))
      .Set("typical_p", NumberJson(sampling.typical))
      .Set("repeat_last_n", sampling.repeat_last_n)
      .Set("repeat_penalty", NumberJson(sampling.repeat_penalty))
      .Set("presence_penalty", NumberJson(sampling.presence_penalty))
      .Set("frequency_penalty", NumberJson(sampling.frequency_penalty))
      .Set("seed", -1)
      .Set("n_predict", -1)
      .Set("stream", false);
  Json settings = Json::Object();
  settings.Set("n_ctx", model.n_ctx).Set("params", std::move(params));
  Json modalities = Json::Object();
  modalities.Set("vision", false).Set("audio", false);
  Json json = Json::Object();
  json.Set("default_generation_settings", std::move(settings))
      .Set("total_slots", properties.parallel)
      .Set("model_alias", model.id)
      .Set("model_path", model.path)
      .Set("modalities", std::move(modalities))
      .Set("chat_template", model.chat_template)
      .Set("bos_token", properties.bos)
      .Set("eos_token", properties.eos)
      .Set("build_info", properties.build)
      .Set("capabilities", TextsJson(model.capabilities))
      .Set("warnings", TextsJson(model.warnings));
  return json.Dump();
}

std::string HealthBody(std::span<const std::string> warnings) {
  Json json = Json::Object();
  json.Set("status", "ok");
  if (!warnings.empty()) json.Set("warnings", TextsJson(warnings));
  return json.Dump();
}

std::string MissingBody(std::span<const std::string> missing) {
  Json error = Json::Object();
  error.Set("code", 503).Set("message", missing.front()).Set("type", "unavailable_error");
  Json json = Json::Object();
  json.Set("status", "incomplete").Set("error", std::move(error));
  return json.Set("missing", TextsJson(missing)).Dump();
}

// The code is a number in this body alone, as in llama-server's.
std::string LoadingBody() {
  Json error = Json::Object();
  error.Set("code", 503).Set("message", "Loading model").Set("type", "unavailable_error");
  return Json::Object().Set("error", std::move(error)).Dump();
}

ApiResult<TokenizeRequest> ParseTokenizeRequest(std::string_view body, const WorkLimit& limit) {
  TRY(const Json json, ParseBody(body, limit));
  TRY(BodyFields fields, BodyFields::Of(json.view(), ""));
  TokenizeRequest request;
  TRY(std::optional<std::string> content, fields.Text("content"));
  if (!content) return BadRequest("content", "\"content\" is missing: the text to tokenize");
  request.content = *std::move(content);
  TRY(const auto add_special, fields.Boolean("add_special"));
  request.add_special = add_special.value_or(false);
  TRY(const auto parse_special, fields.Boolean("parse_special"));
  request.parse_special = parse_special.value_or(true);
  TRY(const auto with_pieces, fields.Boolean("with_pieces"));
  request.with_pieces = with_pieces.value_or(false);
  return request;
}

std::string TokenizeBody(std::span<const Token> tokens) {
  return Json::Object().Set("tokens", Json::Array(tokens)).Dump();
}

std::string TokenizeBody(std::span<const Token> tokens, std::span<const std::string> pieces) {
  CHECK(tokens.size() == pieces.size());
  Json array = Json::Array();
  for (size_t i = 0; i < tokens.size(); ++i) {
    Json token = Json::Object();
    token.Set("id", tokens[i]).Set("piece", PieceJson(pieces[i]));
    array.Push(std::move(token));
  }
  return Json::Object().Set("tokens", std::move(array)).Dump();
}

ApiResult<std::vector<Token>> ParseDetokenizeRequest(std::string_view body, uint32_t n_vocab,
                                                     const WorkLimit& limit) {
  TRY(const Json json, ParseBody(body, limit));
  TRY(BodyFields fields, BodyFields::Of(json.view(), ""));
  TRY(const JsonView array, fields.NeededArray("tokens"));
  return ReadTokenIds(array, "tokens", n_vocab);
}

std::string DetokenizeBody(std::string_view text) {
  return Json::Object().Set("content", text).Dump();
}

std::string ApplyTemplateBody(std::string_view prompt) {
  return Json::Object().Set("prompt", prompt).Dump();
}

std::string InputTokensBody(ApiKind kind, uint64_t n_tokens) {
  Json json = Json::Object();
  if (kind != ApiKind::kMessages) json.Set("object", "response.input_tokens");
  return json.Set("input_tokens", n_tokens).Dump();
}

namespace {

// A file system's limit is 255 bytes, and a file has a longer name while it is written.
constexpr size_t kLongestFileName = 200;

bool IsPlainName(std::string_view name) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7F'; };
  return !name.starts_with('.') && !name.contains("..") &&
         name.find_first_of("/\\") == std::string_view::npos &&
         std::ranges::none_of(name, is_control);
}

}  // namespace

ApiResult<SaveAction> ParsePlaceAction(std::string_view action) {
  if (action == "save") return SaveAction::kSave;
  if (action == "restore") return SaveAction::kRestore;
  if (action == "erase") return SaveAction::kErase;
  return BadRequest("action", Format("\"action\" must be save, restore or erase, not \"{}\"",
                                     Printable(action, 40)));
}

ApiResult<std::string> ParseTextFile(std::string_view body) {
  TRY(const Json json, ParseBody(body));
  TRY(BodyFields fields, BodyFields::Of(json.view(), ""));
  TRY(std::string name, fields.NeededText("filename"));
  if (name.size() > kLongestFileName || !IsPlainName(name)) {
    return BadRequest("filename",
                      Format("\"filename\" must be a plain name of at most {} bytes, without "
                             "folders, \"..\" or a dot at the beginning, not \"{}\"",
                             kLongestFileName, Printable(name, 64)));
  }
  return name;
}

std::string PlaceBody(SaveAction action, uint32_t place, std::string_view file,
                      const SaveFigures& figures) {
  Json body = Json::Object();
  body.Set("id_slot", place);
  if (action == SaveAction::kErase) return body.Set("n_erased", figures.tokens).Dump();
  const bool saves = action == SaveAction::kSave;
  Json timings = Json::Object();
  timings.Set(saves ? "save_ms" : "restore_ms", figures.seconds * 1e3);
  body.Set("filename", file)
      .Set(saves ? "n_saved" : "n_restored", figures.tokens)
      .Set(saves ? "n_written" : "n_read", figures.bytes)
      .Set("timings", std::move(timings));
  return body.Dump();
}

namespace {

constexpr const char* kOllamaVersion = "0.14.0";

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

std::string OllamaTagBody(const ServedModel& model) { return ListedModelJson(model).Dump(); }

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
  if (model.n_embd > 0) info.Set(model.architecture + ".embedding_length", model.n_embd);
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
