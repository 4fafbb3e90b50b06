// SPDX-License-Identifier: MIT
#include "api/server_bodies.h"

#include <utility>

#include "api/body_fields.h"
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
      .Set("n_vocab", model.n_vocab);
  Json json = Json::Object();
  json.Set("id", model.id)
      .Set("object", "model")
      .Set("created", model.created)
      .Set("owned_by", "moestro")
      .Set("meta", std::move(meta));
  return json;
}

// A piece that is part of a character is told as its bytes.
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

std::string HealthBody() { return Json::Object().Set("status", "ok").Dump(); }

// The code is a number here, as llama-server has it, and no other body's is.
std::string LoadingBody() {
  Json error = Json::Object();
  error.Set("code", 503).Set("message", "Loading model").Set("type", "unavailable_error");
  return Json::Object().Set("error", std::move(error)).Dump();
}

ApiResult<TokenizeRequest> ParseTokenizeRequest(std::string_view body) {
  TRY(const Json json, ParseBody(body));
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

ApiResult<std::vector<Token>> ParseDetokenizeRequest(std::string_view body, uint32_t n_vocab) {
  TRY(const Json json, ParseBody(body));
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
