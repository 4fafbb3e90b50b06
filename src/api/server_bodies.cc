// SPDX-License-Identifier: MIT
#include "api/server_bodies.h"

#include <utility>

#include "api/body_fields.h"
#include "api/reply_json.h"
#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"

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
  Json json = Json::Object();
  json.Set("id", model.id)
      .Set("object", "model")
      .Set("created", model.created)
      .Set("owned_by", "moestro")
      .Set("type", "llm")
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

}  // namespace moestro
