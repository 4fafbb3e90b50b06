// SPDX-License-Identifier: MIT
#include "serve/routes.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "api/server_bodies.h"
#include "serve/answer.h"
#include "serve/metrics.h"
#include "serve/page.h"
#include "serve/slot_reply.h"

namespace moestro {
namespace {

using Handler = HttpReply (*)(const ReadyModel& model, const HttpRequest& request);

HttpReply Body(std::string body) { return {.body = std::move(body)}; }

template <ApiKind kind>
HttpReply Text(const ReadyModel& model, const HttpRequest& request) {
  return AnswerRequest(model, kind, request);
}

// The prompt of a conversation, without answering it.
ApiResult<std::string> RenderedPrompt(const ReadyModel& model, ApiKind kind,
                                      const HttpRequest& request) {
  const std::scoped_lock lock(model.preparing);
  const ApiResult<ApiRequest> parsed =
      ParseApiRequest(kind, request.body, model.card.n_vocab, ApiPurpose::kInput);
  if (!parsed) return std::unexpected(parsed.error());
  Result<RenderedChat> chat = model.format.Render(parsed->chat, parsed->form);
  if (!chat) return std::unexpected(ToApiError(chat.error()));
  return std::move(chat->prompt);
}

template <ApiKind kind>
HttpReply CountTokens(const ReadyModel& model, const HttpRequest& request) {
  const ApiResult<std::string> prompt = RenderedPrompt(model, kind, request);
  if (!prompt) return ErrorReply(kind, prompt.error());
  const ApiResult<std::vector<Token>> tokens = PromptTokens(model, *prompt);
  if (!tokens) return ErrorReply(kind, tokens.error());
  return Body(InputTokensBody(kind, tokens->size()));
}

HttpReply ApplyTemplate(const ReadyModel& model, const HttpRequest& request) {
  const ApiResult<std::string> prompt = RenderedPrompt(model, ApiKind::kChat, request);
  return prompt ? Body(ApplyTemplateBody(*prompt)) : ErrorReply(ApiKind::kChat, prompt.error());
}

HttpReply Tokenize(const ReadyModel& model, const HttpRequest& request) {
  const std::scoped_lock lock(model.preparing);
  const ApiResult<TokenizeRequest> asked = ParseTokenizeRequest(request.body);
  if (!asked) return ErrorReply(ApiKind::kChat, asked.error());
  const ApiResult<std::vector<Token>> tokens =
      TokensOf(model, asked->content, asked->add_special, asked->parse_special);
  if (!tokens) return ErrorReply(ApiKind::kChat, tokens.error());
  if (!asked->with_pieces) return Body(TokenizeBody(*tokens));
  std::vector<std::string> pieces;
  for (const Token token : *tokens) pieces.push_back(model.vocab.Spelling(token));
  return Body(TokenizeBody(*tokens, pieces));
}

HttpReply Detokenize(const ReadyModel& model, const HttpRequest& request) {
  const std::scoped_lock lock(model.preparing);
  const ApiResult<std::vector<Token>> tokens =
      ParseDetokenizeRequest(request.body, model.card.n_vocab);
  if (!tokens) return ErrorReply(ApiKind::kChat, tokens.error());
  if (tokens->size() > model.card.n_ctx) {
    return ErrorReply(ApiKind::kChat, ContextExceeded(tokens->size(), -1, model.card.n_ctx));
  }
  std::string text;
  for (const Token token : *tokens) text += model.vocab.Spelling(token);
  return Body(DetokenizeBody(text));
}

HttpReply ListModels(const ReadyModel& model, const HttpRequest&) {
  return Body(ModelListBody(std::span(&model.card, 1)));
}

HttpReply Metrics(const ReadyModel& model, const HttpRequest&) {
  return {.type = kMetricsType, .body = MetricsText(model.scheduler.status(), model)};
}

HttpReply Slots(const ReadyModel& model, const HttpRequest&) {
  return Body(SlotsJson(model.scheduler.status(), model.card.n_ctx).Dump());
}

HttpReply State(const ReadyModel& model, const HttpRequest&) {
  return Body(DashboardState(model.scheduler.status(), model).Dump());
}

HttpReply Embeddings(const ReadyModel&, const HttpRequest&) {
  return ErrorReply(ApiKind::kChat, NotOffered("embeddings"));
}

struct Route {
  std::string_view method;
  std::string_view path;  // without "/v1"
  Handler handler;
};

// Places have a number behind this.
constexpr std::string_view kSlotPath = "/slots/";

HttpReply WrongMethod(const HttpRequest& request, std::string_view right) {
  return {.status = 405,
          .body = Routes::Refuse(
              405, Format("{} takes {}, not {}", request.path, right, request.method)),
          .headers = {{"Allow", std::string(right)}}};
}

constexpr std::array kRoutes = {
    Route{"POST", "/chat/completions", Text<ApiKind::kChat>},
    Route{"POST", "/completions", Text<ApiKind::kCompletion>},
    Route{"POST", "/completion", Text<ApiKind::kCompletion>},
    Route{"POST", "/responses", Text<ApiKind::kResponses>},
    Route{"POST", "/messages", Text<ApiKind::kMessages>},
    Route{"POST", "/chat/completions/input_tokens", CountTokens<ApiKind::kChat>},
    Route{"POST", "/responses/input_tokens", CountTokens<ApiKind::kResponses>},
    Route{"POST", "/messages/count_tokens", CountTokens<ApiKind::kMessages>},
    Route{"POST", "/apply-template", ApplyTemplate},
    Route{"POST", "/tokenize", Tokenize},
    Route{"POST", "/detokenize", Detokenize},
    Route{"POST", "/embeddings", Embeddings},
    Route{"GET", "/models", ListModels},
    Route{"GET", "/metrics", Metrics},
    Route{"GET", "/slots", Slots},
    Route{"GET", "/state", State},
};

std::string_view WithoutVersion(std::string_view path) {
  constexpr std::string_view kVersion = "/v1/";
  return path.starts_with(kVersion) ? path.substr(kVersion.size() - 1) : path;
}

bool IsOpen(std::string_view path) {
  return WithoutVersion(path) == "/health" || FindPageFile(path) != nullptr;
}

// As long for a wrong key as for a right one of its length.
bool IsEqual(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

ApiKind KindOf(std::string_view path) {
  return WithoutVersion(path).starts_with("/messages") ? ApiKind::kMessages : ApiKind::kChat;
}

}  // namespace

bool Routes::HasKey(const HttpRequest& request) const {
  if (options_.keys.empty()) return true;
  std::string key = request.header("x-api-key").value_or("");
  constexpr std::string_view kBearer = "Bearer ";
  if (const auto bearer = request.header("Authorization"); bearer && bearer->starts_with(kBearer)) {
    key = bearer->substr(kBearer.size());
  }
  bool is_known = false;  // all are compared
  for (const std::string& known : options_.keys) is_known = IsEqual(key, known) || is_known;
  return is_known;
}

std::vector<std::pair<std::string, std::string>> Routes::headers() const {
  std::vector<std::pair<std::string, std::string>> headers = {
      {"Server", "moestro"}, {"X-Content-Type-Options", "nosniff"}};
  if (!options_.cors_origin.empty()) {
    headers.emplace_back("Access-Control-Allow-Origin", options_.cors_origin);
    headers.emplace_back("Vary", "Origin");
  }
  return headers;
}

std::optional<HttpReply> Routes::Admit(const HttpRequest& request) const {
  if (request.method == "OPTIONS") {
    HttpReply reply{.status = 204};
    if (!options_.cors_origin.empty()) {
      reply.headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                       {"Access-Control-Allow-Headers", "Authorization, Content-Type, x-api-key"},
                       {"Access-Control-Max-Age", "86400"}};
    }
    return reply;
  }
  if (IsOpen(request.path) || HasKey(request)) return std::nullopt;
  HttpReply reply =
      ErrorReply(KindOf(request.path),
                 {.status = 401,
                  .type = "authentication_error",
                  .message = "this server wants a key: send it as 'Authorization: Bearer KEY'",
                  .code = "invalid_api_key"});
  reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

HttpReply Routes::Answer(const HttpRequest& request) const {
  const ReadyModel* model = model_.load(std::memory_order_acquire);
  if (const PageFile* file = FindPageFile(request.path); file != nullptr) return ReplyOf(*file);
  const std::string_view path = WithoutVersion(request.path);
  if (path == "/health") {
    return model != nullptr ? Body(HealthBody()) : HttpReply{.status = 503, .body = LoadingBody()};
  }
  const auto has_path = [&](const Route& route) { return route.path == path; };
  const auto found = std::ranges::find_if(kRoutes, has_path);
  const bool is_one_model = path.starts_with("/models/") && request.method == "GET";
  const bool is_slot = path.starts_with(kSlotPath);
  if (found == kRoutes.end() && !is_one_model && !is_slot) {
    return {.status = 404, .body = Refuse(404, Format("there is no {}", request.path))};
  }
  if (model == nullptr) {
    return {.status = 503, .body = LoadingBody(), .headers = {{"Retry-After", "2"}}};
  }
  if (is_one_model) {
    if (path.substr(std::string_view("/models/").size()) == model->card.id) {
      return Body(ModelBody(model->card));
    }
    return {.status = 404, .body = Refuse(404, Format("there is no {}", request.path))};
  }
  if (is_slot) {
    if (request.method != "POST") return WrongMethod(request, "POST");
    return ChangeSlot(*model, request, path.substr(kSlotPath.size()));
  }
  if (found->method != request.method) return WrongMethod(request, found->method);
  return found->handler(*model, request);
}

std::string Routes::Refuse(int status, std::string_view message) {
  const bool is_ours = status >= 500;
  return ErrorBody({.status = status,
                    .type = is_ours ? "server_error" : "invalid_request_error",
                    .message = std::string(message)});
}

}  // namespace moestro
