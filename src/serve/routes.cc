// SPDX-License-Identifier: MIT
#include "serve/routes.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "api/server_bodies.h"
#include "serve/answer.h"
#include "serve/api_keys.h"
#include "serve/embed_answer.h"
#include "serve/metrics.h"
#include "serve/work.h"

// Made by the build: cmake/Embed.cmake.
extern const unsigned char moestro_page_html[];
extern const unsigned long moestro_page_html_size;
extern const unsigned char moestro_page_css[];
extern const unsigned long moestro_page_css_size;
extern const unsigned char moestro_page_js[];
extern const unsigned long moestro_page_js_size;
extern const unsigned char moestro_page_chat_js[];
extern const unsigned long moestro_page_chat_js_size;
extern const unsigned char moestro_page_common_js[];
extern const unsigned long moestro_page_common_js_size;
extern const unsigned char moestro_page_live_js[];
extern const unsigned long moestro_page_live_js_size;
extern const unsigned char moestro_page_map_js[];
extern const unsigned long moestro_page_map_js_size;
extern const unsigned char moestro_page_models_js[];
extern const unsigned long moestro_page_models_js_size;

namespace moestro {
namespace {

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' "
    "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

constexpr const char* kScript = "text/javascript; charset=utf-8";

std::string_view Bytes(const unsigned char* begin, unsigned long size) {
  return {reinterpret_cast<const char*>(begin), size};
}

}  // namespace

const PageFile* FindPageFile(std::string_view path) {
  static const std::array files = {
      PageFile{"/", "text/html; charset=utf-8", Bytes(moestro_page_html, moestro_page_html_size)},
      PageFile{"/page.css", "text/css; charset=utf-8",
               Bytes(moestro_page_css, moestro_page_css_size)},
      PageFile{"/page.js", kScript, Bytes(moestro_page_js, moestro_page_js_size)},
      PageFile{"/chat.js", kScript, Bytes(moestro_page_chat_js, moestro_page_chat_js_size)},
      PageFile{"/common.js", kScript, Bytes(moestro_page_common_js, moestro_page_common_js_size)},
      PageFile{"/live.js", kScript, Bytes(moestro_page_live_js, moestro_page_live_js_size)},
      PageFile{"/map.js", kScript, Bytes(moestro_page_map_js, moestro_page_map_js_size)},
      PageFile{"/models.js", kScript, Bytes(moestro_page_models_js, moestro_page_models_js_size)},
  };
  const auto found = std::ranges::find(files, path, &PageFile::path);
  return found == files.end() ? nullptr : &*found;
}

HttpReply ReplyOf(const PageFile& file) {
  return {.type = std::string(file.type),
          .body = std::string(file.bytes),
          .headers = {{"Content-Security-Policy", kPolicy},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}}};
}

namespace {

using Handler = HttpReply (*)(const ReadyModel& model, HttpRequest& request);

HttpReply Body(std::string body) { return {.body = std::move(body)}; }

// The refusal of a request for text, or about a prompt, by a model for embeddings.
std::optional<HttpReply> RefuseText(const ReadyModel& model, ApiKind kind,
                                    const HttpRequest& request) {
  if (model.card.n_embd == 0) return std::nullopt;
  ApiError error = NotOffered("text");
  error.message = Format(
      "{} is a model for embeddings and writes no text; POST /v1/embeddings or /api/embed has them",
      model.card.id);
  return ErrorReply(kind, error, *request.record);
}

template <ApiKind kind>
HttpReply Text(const ReadyModel& model, HttpRequest& request) {
  if (auto refused = RefuseText(model, kind, request)) return *std::move(refused);
  return AnswerRequest(model, kind, request);
}

template <ApiKind kind>
HttpReply CountTokens(const ReadyModel& model, HttpRequest& request) {
  if (auto refused = RefuseText(model, kind, request)) return *std::move(refused);
  const Preparing::Turn turn = model.preparing.Begin(request.body.size());
  const RecallItems recall = RecallFrom(model.responses, request.record->owner, turn.limit());
  const ApiResult<RenderedChat> prompt =
      RenderedPrompt(model, {.kind = kind, .body = request.body, .recall = recall}, turn.limit());
  if (!prompt) return ErrorReply(kind, prompt.error(), *request.record);
  const ApiResult<std::vector<Token>> tokens = PromptTokens(model, *prompt, turn.limit());
  if (!tokens) return ErrorReply(kind, tokens.error(), *request.record);
  return Body(InputTokensBody(kind, tokens->size()));
}

HttpReply ApplyTemplate(const ReadyModel& model, HttpRequest& request) {
  if (auto refused = RefuseText(model, ApiKind::kChat, request)) return *std::move(refused);
  const Preparing::Turn turn = model.preparing.Begin(request.body.size());
  const ApiResult<RenderedChat> prompt =
      RenderedPrompt(model, {.kind = ApiKind::kChat, .body = request.body}, turn.limit());
  return prompt ? Body(ApplyTemplateBody(prompt->prompt))
                : ErrorReply(ApiKind::kChat, prompt.error(), *request.record);
}

HttpReply Tokenize(const ReadyModel& model, HttpRequest& request) {
  const Preparing::Turn turn = model.preparing.Begin(request.body.size());
  const ApiResult<TokenizeRequest> asked = ParseTokenizeRequest(request.body, turn.limit());
  if (!asked) return ErrorReply(ApiKind::kChat, asked.error(), *request.record);
  const ApiResult<std::vector<Token>> tokens = TokensOf(
      model, asked->content,
      {.add_special = asked->add_special, .parse_special = asked->parse_special}, turn.limit());
  if (!tokens) return ErrorReply(ApiKind::kChat, tokens.error(), *request.record);
  if (!asked->with_pieces) return Body(TokenizeBody(*tokens));
  std::vector<std::string> pieces;
  for (const Token token : *tokens) pieces.push_back(model.vocab.Spelling(token));
  return Body(TokenizeBody(*tokens, pieces));
}

HttpReply Detokenize(const ReadyModel& model, HttpRequest& request) {
  const Preparing::Turn turn = model.preparing.Begin(request.body.size());
  const ApiResult<std::vector<Token>> tokens =
      ParseDetokenizeRequest(request.body, model.card.n_vocab, turn.limit());
  if (!tokens) return ErrorReply(ApiKind::kChat, tokens.error(), *request.record);
  if (tokens->size() > model.card.n_ctx) {
    return ErrorReply(ApiKind::kChat,
                      ContextExceeded({.prompt = tokens->size(), .most = model.card.n_ctx}),
                      *request.record);
  }
  std::string text;
  for (const Token token : *tokens) text += model.vocab.Spelling(token);
  return Body(DetokenizeBody(text));
}

HttpReply ListModels(const ReadyModel& model, HttpRequest&) {
  return Body(ModelListBody(std::span(&model.card, 1)));
}

HttpReply Metrics(const ReadyModel& model, HttpRequest&) {
  return {.type = kMetricsType, .body = MetricsText(model.scheduler.status(), model)};
}

HttpReply Places(const ReadyModel& model, HttpRequest&) {
  return Body(PlacesJson(model.scheduler.status(), model.card.n_ctx).Dump());
}

HttpReply State(const ReadyModel& model, HttpRequest&) {
  return Body(DashboardState(model.scheduler.status(), model).Dump());
}

template <std::string (*body)(const ServedModel& model)>
HttpReply OfModel(const ReadyModel& model, HttpRequest&) {
  return Body(body(model.card));
}

HttpReply ShowModel(const ReadyModel& model, HttpRequest& request) {
  const Preparing::Turn turn = model.preparing.Begin(request.body.size());
  const ApiStatus asked = CheckOllamaShow(request.body, turn.limit());
  return asked ? Body(OllamaShowBody(model.card))
               : ErrorReply(ApiKind::kOllamaChat, asked.error(), *request.record);
}

HttpReply Version(const ReadyModel&, HttpRequest&) { return Body(OllamaVersionBody()); }

HttpReply Properties(const ReadyModel& model, HttpRequest&) {
  return Body(PropertiesBody(model.card, {.defaults = {},
                                          .parallel = model.scheduler.status().parallel,
                                          .bos = model.vocab.begin_text(),
                                          .eos = model.vocab.end_text(),
                                          .build = "moestro " MOESTRO_VERSION}));
}

// Refuses requests that would change the set of models.
HttpReply OneModelOnly(const ReadyModel&, HttpRequest& request) {
  return ErrorReply(ApiKind::kOllamaChat, NotOffered("changing the model of a running server"),
                    *request.record);
}

template <EmbedApi api>
HttpReply Embed(const ReadyModel& model, HttpRequest& request) {
  return AnswerEmbeddings(model, api, request);
}

struct Route {
  std::string_view method;
  std::string_view path;  // without "/v1"
  Handler handler;
};

HttpReply Draining() {
  return {.status = 503,
          .body = ErrorBody({.status = 503,
                             .type = "unavailable_error",
                             .message = "the server is going down",
                             .code = "server_shutdown"})};
}

HttpReply Health(const ReadyModel* model) {
  if (model == nullptr) return {.status = 503, .body = LoadingBody()};
  const std::vector<std::string> missing = model->helpers.Missing();
  if (missing.empty()) return Body(HealthBody(model->card.warnings));
  return {.status = 503, .body = MissingBody(missing), .headers = {{"Retry-After", "1"}}};
}

// Places have a number behind this.
constexpr std::string_view kPlacePath = "/slots/";
// Stored answers have an id behind this.
constexpr std::string_view kStoredPath = "/responses/";

HttpReply WrongMethod(const HttpRequest& request, std::string_view right) {
  return {
      .status = 405,
      .body = Routes::Refuse(*request.record, 405,
                             Format("{} takes {}, not {}", request.path, right, request.method)),
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
    Route{"POST", "/embeddings", Embed<EmbedApi::kOpenAi>},
    Route{"POST", "/api/chat", Text<ApiKind::kOllamaChat>},
    Route{"POST", "/api/generate", Text<ApiKind::kOllamaGenerate>},
    Route{"GET", "/api/tags", OfModel<OllamaTagsBody>},
    Route{"GET", "/api/ps", OfModel<OllamaRunningBody>},
    Route{"POST", "/api/show", ShowModel},
    Route{"GET", "/api/version", Version},
    Route{"POST", "/api/pull", OneModelOnly},
    Route{"POST", "/api/push", OneModelOnly},
    Route{"POST", "/api/create", OneModelOnly},
    Route{"POST", "/api/copy", OneModelOnly},
    Route{"DELETE", "/api/delete", OneModelOnly},
    Route{"POST", "/api/embed", Embed<EmbedApi::kOllama>},
    Route{"POST", "/api/embeddings", Embed<EmbedApi::kOllamaOne>},
    Route{"GET", "/props", Properties},
    Route{"GET", "/models", ListModels},
    Route{"GET", "/metrics", Metrics},
    Route{"GET", "/slots", Places},
    Route{"GET", "/state", State},
};

std::string_view WithoutVersion(std::string_view path) {
  constexpr std::string_view kVersion = "/v1/";
  return path.starts_with(kVersion) ? path.substr(kVersion.size() - 1) : path;
}

bool IsOpen(std::string_view path) {
  return WithoutVersion(path) == "/health" || FindPageFile(path) != nullptr;
}

ApiKind KindOf(std::string_view path) {
  if (path.starts_with("/api/")) return ApiKind::kOllamaChat;
  return WithoutVersion(path).starts_with("/messages") ? ApiKind::kMessages : ApiKind::kChat;
}

// In the form that the path's clients read.
HttpReply Loading(const HttpRequest& request) {
  if (KindOf(request.path) == ApiKind::kChat) {
    return {.status = 503, .body = LoadingBody(), .headers = {{"Retry-After", "2"}}};
  }
  return ErrorReply(KindOf(request.path),
                    {.status = 503,
                     .type = "unavailable_error",
                     .message = "the model is being loaded; ask again"},
                    *request.record);
}

}  // namespace

// Clients of OpenAI send the first, Anthropic's the second; some send both.
uint32_t Routes::KeyOf(const HttpRequest& request) const {
  const std::string bearer = BearerOf(request.header("Authorization").value_or(""));
  const std::string other = request.header("x-api-key").value_or("");
  const uint32_t by_bearer = WhichKey(options_.keys, bearer);
  const uint32_t by_other = WhichKey(options_.keys, other);
  return by_bearer > 0 ? by_bearer : by_other;
}

// A server without keys may be a model's process behind a house, which names the owner. A client
// that names one itself gets files that only those find who have that name.
std::string Routes::OwnerOf(const HttpRequest& request) const {
  const uint32_t key = request.record->key;
  if (!options_.keys.empty()) return key > 0 ? ResponseStore::OwnerOf(options_.keys[key - 1]) : "";
  std::string named = request.header(kOwnerHeader).value_or("");
  return ResponseStore::IsOwner(named) ? named : "";
}

std::vector<std::pair<std::string, std::string>> Routes::HeadersFor(
    const HttpRequest& request) const {
  auto headers = SharingHeaders(options_.access, request.header("Origin"));
  headers.emplace_back("Server", "moestro");
  headers.emplace_back("X-Content-Type-Options", "nosniff");
  return headers;
}

std::optional<HttpReply> Routes::Admit(const HttpRequest& request) const {
  const std::optional<std::string> origin = request.header("Origin");
  const std::optional<Refusal> refusal =
      CheckAccess(options_.access, {.path = request.path,
                                    .is_page = FindPageFile(request.path) != nullptr,
                                    .host = request.header("Host"),
                                    .origin = origin,
                                    .fetch_site = request.header("Sec-Fetch-Site")});
  if (refusal) {
    return ErrorReply(
        KindOf(request.path),
        {.status = refusal->status,
         .type = refusal->status == 403 ? "permission_error" : "invalid_request_error",
         .message = refusal->message},
        *request.record);
  }
  if (request.method == "OPTIONS") {
    const auto headers = request.header("Access-Control-Request-Headers");
    return HttpReply{.status = 204, .headers = PreflightHeaders(options_.access, origin, headers)};
  }
  request.record->key = KeyOf(request);
  request.record->owner = OwnerOf(request);
  if (options_.keys.empty() || request.record->key > 0 || IsOpen(request.path)) {
    return std::nullopt;
  }
  HttpReply reply =
      ErrorReply(KindOf(request.path),
                 {.status = 401,
                  .type = "authentication_error",
                  .message = "this server wants a key: send it as 'Authorization: Bearer KEY'",
                  .code = "invalid_api_key"},
                 *request.record);
  reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

HttpReply Routes::Answer(HttpRequest& request) const {
  const ReadyModel* model = model_.load(std::memory_order_acquire);
  if (const PageFile* file = FindPageFile(request.path); file != nullptr) return ReplyOf(*file);
  const std::string_view path = WithoutVersion(request.path);
  if (path == "/health") {
    if (is_draining_.load(std::memory_order_acquire)) return Draining();
    return Health(model);
  }
  const auto has_path = [&](const Route& route) { return route.path == path; };
  const auto found = std::ranges::find_if(kRoutes, has_path);
  const std::string_view method =
      request.method == "HEAD" ? std::string_view("GET") : request.method;
  const bool is_one_model = path.starts_with("/models/") && method == "GET";
  const bool is_place = path.starts_with(kPlacePath);
  const bool is_stored = found == kRoutes.end() && path.starts_with(kStoredPath);
  if (found == kRoutes.end() && !is_one_model && !is_place && !is_stored) {
    return {.status = 404,
            .body = Refuse(*request.record, 404, Format("there is no {}", request.path))};
  }
  if (model == nullptr) {
    return Loading(request);
  }
  if (is_one_model) {
    if (path.substr(std::string_view("/models/").size()) == model->card.id) {
      return Body(ModelBody(model->card));
    }
    return {.status = 404,
            .body = Refuse(*request.record, 404, Format("there is no {}", request.path))};
  }
  if (is_stored) {
    if (method != "GET" && method != "DELETE") return WrongMethod(request, "GET, HEAD, DELETE");
    return AnswerStored(model->responses, request, path.substr(kStoredPath.size()));
  }
  if (is_place) {
    if (request.method != "POST") return WrongMethod(request, "POST");
    return ChangePlace(*model, request, path.substr(kPlacePath.size()));
  }
  if (found->method != method) {
    return WrongMethod(request, found->method == "GET" ? "GET, HEAD" : found->method);
  }
  return found->handler(*model, request);
}

std::string_view Routes::NameOf(std::string_view path) {
  if (FindPageFile(path) != nullptr) return "page";
  path = WithoutVersion(path);
  if (path == "/health") return "/health";
  if (path.starts_with(kPlacePath)) return "/slots/N";
  if (path.starts_with("/models/")) return "/models/NAME";
  const auto found = std::ranges::find(kRoutes, path, &Route::path);
  if (found == kRoutes.end() && path.starts_with(kStoredPath)) return kOfStored;
  return found == kRoutes.end() ? "other" : found->path;
}

std::vector<std::string> Routes::KeptPaths() {
  return {"/health", "/v1/health", "/metrics", "/v1/metrics"};
}

std::string Routes::Refuse(const RequestRecord& record, int status, std::string_view message) {
  const bool is_ours = status >= 500;
  return ErrorBodyFor(KindOf(record.path),
                      {.status = status,
                       .type = is_ours ? "server_error" : "invalid_request_error",
                       .message = std::string(message)},
                      record.id);
}

}  // namespace moestro
