// SPDX-License-Identifier: MIT
#include "house/house_routes.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <utility>

#include "api/server_bodies.h"
#include "base/text.h"
#include "house/house_bodies.h"
#include "house/worker_link.h"
#include "serve/answer.h"
#include "serve/metrics.h"

namespace moestro {
namespace {

using Outcome = WorkerLink::Outcome;

// The route of a request that a process of a model has logged.
constexpr std::string_view kPassedOn = "passed on";
// Whole replies up to this size keep their length; larger ones go on piece by piece.
constexpr uint64_t kMostWhole = uint64_t{256} << 10;
// Time that the first list of models waits for what is known of them.
constexpr double kListSeconds = 2.0;

std::string_view WithoutV1(std::string_view path) {
  constexpr std::string_view kVersion = "/v1/";
  return path.starts_with(kVersion) ? path.substr(kVersion.size() - 1) : path;
}

ApiKind KindOfPath(std::string_view path) {
  if (path == "/api/generate") return ApiKind::kOllamaGenerate;
  if (path.starts_with("/api/")) return ApiKind::kOllamaChat;
  if (path.starts_with("/messages")) return ApiKind::kMessages;
  if (path.starts_with("/responses")) return ApiKind::kResponses;
  return path.starts_with("/completion") ? ApiKind::kCompletion : ApiKind::kChat;
}

int64_t UnixSeconds() {
  return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
}

ApiError NotFound(std::string message) {
  return {.status = 404,
          .type = "invalid_request_error",
          .message = std::move(message),
          .code = "model_not_found",
          .param = "model"};
}

HttpReply WrongMethod(const HttpRequest& request, std::string_view right) {
  return {
      .status = 405,
      .body = Routes::Refuse(*request.record, 405,
                             Format("{} takes {}, not {}", request.path, right, request.method)),
      .headers = {{"Allow", std::string(right)}}};
}

// A path as a request's first line has it.
std::string Encoded(std::string_view path) {
  constexpr std::string_view kPlain = "/-_.~";
  std::string encoded;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || kPlain.contains(c);
    encoded += is_plain ? std::string(1, c) : Format("%{:02X}", static_cast<unsigned>(byte));
  }
  return encoded;
}

// The head of the request to a process. A process needs no more of the client's head but whose
// stored answers the request may name: who may ask has been decided.
std::string HeadFor(const HttpRequest& request) {
  std::string target = Encoded(request.path);
  if (const auto action = request.query("action")) target += "?action=" + Encoded(*action);
  std::string owner;
  if (!request.record->owner.empty())
    owner = Format("{}: {}\r\n", kOwnerHeader, request.record->owner);
  return Format(
      "{} {} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {}\r\n{}Content-Length: {}\r\n\r\n",
      request.method == "HEAD" ? "GET" : request.method, target, request.record->id, owner,
      request.body.size());
}

// A request on its way through a process, as long as its reply lasts.
struct Passing {
  Passing(House::Visit of, WorkerLink to, LinkPool& links)
      : visit(std::move(of)), link(std::move(to)), pool(links) {}
  ~Passing() {
    if (!reply.is_over() || !reply.stays()) return;
    Caught([&] { pool.Give(visit.socket(), std::move(link)); }, [](std::string_view) {});
  }
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;

  House::Visit visit;
  WorkerLink link;
  LinkPool& pool;
  PassedReply reply = {};
  std::string body = {};  // bytes that have come and were not sent
};

ApiError Died(const std::string& name) {
  return {
      .status = 503,
      .type = "unavailable_error",
      .message = Format("the process of the model {} has ended over this request; it is started "
                        "again, ask again",
                        name),
      .code = "model_ended"};
}

// Sends the reply's body as it comes. Of an event only its last byte counts: neither an error event
// nor the comment that tries a half-closed client may stand in the middle of one.
void StreamOn(Passing& passing, HttpStream& stream, const std::string& error_event) {
  char last = '\n';
  for (;;) {
    if (!passing.body.empty()) {
      last = passing.body.back();
      if (!stream.Write(passing.body)) return;
      passing.body.clear();
    }
    if (passing.reply.is_over()) return;
    const Outcome outcome = passing.link.Read(passing.reply, passing.body,
                                              [&] { return last == '\n' && !stream.is_open(); });
    if (outcome == Outcome::kClientGone) return;
    if (outcome == Outcome::kDone) continue;
    if (!passing.body.empty() && !stream.Write(passing.body)) return;
    if (!passing.body.empty()) last = passing.body.back();
    // The connection breaks off: any other end would look like that of a whole reply.
    if (error_event.empty() || last != '\n') throw std::runtime_error("a cut reply");
    stream.Write(error_event);
    return;
  }
}

// The words that end a broken stream; empty: the reply is no stream.
std::string ErrorEvent(ApiKind kind, const PassedReply& reply, const ApiError& error,
                       const HttpRequest& request) {
  if (reply.has_length() || reply.type() != StreamType(kind)) return "";
  ApiRequest streamed;
  streamed.kind = kind;
  streamed.stream = true;
  ReplyHead head;
  head.request_id = request.record->id;
  return MakeReplyWriter(streamed, head)->Failed(error);
}

}  // namespace

bool HouseRoutes::WasPassedOn(const RequestRecord& record) { return record.route == kPassedOn; }

std::vector<ModelReport> HouseRoutes::Reports() const {
  std::vector<ModelReport> reports;
  for (size_t model = 0; model < house_.models().size(); ++model) {
    reports.push_back(house_.Report(model));
  }
  return reports;
}

ApiResult<size_t> HouseRoutes::ModelOf(const AskedModel& asked) const {
  const auto& models = house_.models();
  if (asked.model.empty()) {
    if (models.size() == 1) return 0;
    return BadRequest("model",
                      "\"model\" should name one of this server's models" + NamesText(models));
  }
  const std::optional<size_t> found = FindHouseModel(models, asked.model);
  if (!found) return std::unexpected(NotFound(UnknownModel(models, asked.model)));
  return *found;
}

// Requests without a body: of the model that ?model= names, else of the one that was used last.
ApiResult<size_t> HouseRoutes::ModelOfQuery(const HttpRequest& request) const {
  if (const auto name = request.query("model")) return ModelOf({.model = *name});
  const std::optional<size_t> last = house_.LastUsed();
  if (last) return *last;
  return std::unexpected(ApiError{.status = 503,
                                  .type = "unavailable_error",
                                  .message = "no model is loaded; a request for one loads it"});
}

HttpReply HouseRoutes::LoadOrUnload(const HttpRequest& request, bool loads) const {
  const ApiResult<AskedModel> asked = ReadAskedModel(request.body);
  if (!asked) return ErrorReply(ApiKind::kChat, asked.error(), *request.record);
  const ApiResult<size_t> model = ModelOf(*asked);
  if (!model) return ErrorReply(ApiKind::kChat, model.error(), *request.record);
  if (!loads) {
    const ApiStatus done = house_.Unload(*model);
    if (!done) return ErrorReply(ApiKind::kChat, done.error(), *request.record);
    return {.body = HouseModelBody(house_.Report(*model))};
  }
  auto visit = house_.Enter(*model, request.is_gone);
  if (!visit) return ErrorReply(ApiKind::kChat, visit.error(), *request.record);
  visit->set_keep_alive(asked->keep_alive);
  return {.body = HouseModelBody(house_.Report(*model))};
}

// Ollama's clients ask this of every model that is listed, so nothing is loaded for it.
HttpReply HouseRoutes::Show(const HttpRequest& request) const {
  const ApiResult<AskedModel> asked = ReadAskedModel(request.body);
  const ApiResult<size_t> model = asked ? ModelOf(*asked) : std::unexpected(asked.error());
  if (!model) return ErrorReply(ApiKind::kOllamaChat, model.error(), *request.record);
  house_.AwaitNeeds(kListSeconds);
  const ModelReport report = house_.Report(*model);
  if (!report.show.empty()) return {.body = report.show};
  const bool is_broken = !report.error.empty();
  return ErrorReply(ApiKind::kOllamaChat,
                    {.status = is_broken ? 500 : 503,
                     .type = "server_error",
                     .message = is_broken ? report.error : "the model is looked at; ask again"},
                    *request.record);
}

std::optional<HttpReply> HouseRoutes::AnswerAboutModels(const HttpRequest& request,
                                                        std::string_view path) const {
  constexpr std::string_view kOne = "/models/";
  const bool is_get = request.method == "GET" || request.method == "HEAD";
  const bool is_change = path == "/models/load" || path == "/models/unload";
  if (is_change && request.method == "POST") return LoadOrUnload(request, path == "/models/load");
  if (path == "/api/show" && request.method == "POST") return Show(request);
  const bool is_list = path == "/models" || path == "/api/tags" || path == "/api/ps";
  if (!is_list && !path.starts_with(kOne)) return std::nullopt;
  if (!is_get) return WrongMethod(request, is_change ? "POST" : "GET, HEAD");
  house_.AwaitNeeds(kListSeconds);
  if (path == "/models") return HttpReply{.body = HouseModelsBody(Reports())};
  if (path == "/api/tags") return HttpReply{.body = HouseTagsBody(Reports())};
  if (path == "/api/ps") return HttpReply{.body = HouseRunningBody(Reports(), UnixSeconds())};
  const ApiResult<size_t> model = ModelOf({.model = std::string(path.substr(kOne.size()))});
  if (!model) return ErrorReply(ApiKind::kChat, model.error(), *request.record);
  return HttpReply{.body = HouseModelBody(house_.Report(*model))};
}

// nullopt: the request is a process's to answer.
std::optional<HttpReply> HouseRoutes::AnswerItself(HttpRequest& request,
                                                   std::string_view path) const {
  if (const PageFile* file = FindPageFile(request.path); file != nullptr) return ReplyOf(*file);
  if (path == "/health") {
    if (!is_draining_.load(std::memory_order_acquire)) return HttpReply{.body = HealthBody({})};
    return ErrorReply(ApiKind::kChat, GoingDown(), *request.record);
  }
  if (path == "/metrics" && !request.query("model")) {
    return HttpReply{.type = kMetricsType,
                     .body = HouseMetrics(Reports(), {.budget = house_.bytes(),
                                                      .held = house_.held(),
                                                      .counts = house_.counts()})};
  }
  if (path == "/api/version") return HttpReply{.body = OllamaVersionBody()};
  constexpr std::array<std::string_view, 5> kChanges = {"/api/pull", "/api/push", "/api/create",
                                                        "/api/copy", "/api/delete"};
  if (std::ranges::contains(kChanges, path)) {
    return ErrorReply(ApiKind::kOllamaChat, NotOffered("changing the models on this machine"),
                      *request.record);
  }
  if (auto reply = AnswerAboutModels(request, path)) return reply;
  if (Routes::NameOf(request.path) == Routes::kOfStored) return AnswerOfStore(request, path);
  if (Routes::NameOf(request.path) == "other") {
    return HttpReply{
        .status = 404,
        .body = Routes::Refuse(*request.record, 404, Format("there is no {}", request.path))};
  }
  return std::nullopt;
}

// Answered without a process, so that no model is loaded for that.
HttpReply HouseRoutes::AnswerOfStore(const HttpRequest& request, std::string_view path) const {
  const bool is_get = request.method == "GET" || request.method == "HEAD";
  if (!is_get && request.method != "DELETE") return WrongMethod(request, "GET, HEAD, DELETE");
  return AnswerStored(responses_, request, path.substr(std::string_view("/responses/").size()));
}

HttpReply HouseRoutes::Answer(HttpRequest& request) const {
  const std::string_view path = WithoutV1(request.path);
  if (auto reply = AnswerItself(request, path)) return *std::move(reply);
  constexpr std::array<std::string_view, 4> kReports = {"/props", "/slots", "/state", "/metrics"};
  const bool is_get = request.method == "GET" || request.method == "HEAD";
  if (std::ranges::contains(kReports, path)) {
    return is_get ? PassByQuery(request, false) : WrongMethod(request, "GET, HEAD");
  }
  if (request.method != "POST") return WrongMethod(request, "POST");
  return path.starts_with("/slots/") ? PassByQuery(request, true) : PassByBody(request, path);
}

// loads: the model is loaded for this request. A report, which may be asked for every second, loads
// none and evicts none.
HttpReply HouseRoutes::PassByQuery(HttpRequest& request, bool loads) const {
  const ApiResult<size_t> model = ModelOfQuery(request);
  if (!model) return ErrorReply(ApiKind::kChat, model.error(), *request.record);
  if (!loads && house_.Report(*model).state != HouseState::kReady) {
    return ErrorReply(ApiKind::kChat,
                      {.status = 503,
                       .type = "unavailable_error",
                       .message = Format("the model {} is not loaded; a request for a text of it, "
                                         "or POST /models/load, loads it",
                                         house_.models()[*model].name)},
                      *request.record);
  }
  return Pass(request, ApiKind::kChat, *model, std::nullopt);
}

HttpReply HouseRoutes::PassByBody(HttpRequest& request, std::string_view path) const {
  const ApiKind kind = KindOfPath(path);
  const ApiResult<AskedModel> asked = ReadAskedModel(request.body);
  if (!asked) return ErrorReply(kind, asked.error(), *request.record);
  const ApiResult<size_t> model = ModelOf(*asked);
  if (!model) return ErrorReply(kind, model.error(), *request.record);
  const bool is_ollamas = path == "/api/chat" || path == "/api/generate";
  if (is_ollamas && asked->keep_alive == 0.0 && !asked->has_text) {
    const ApiStatus done = house_.Unload(*model);
    if (!done) return ErrorReply(kind, done.error(), *request.record);
    return {.body = HouseUnloadedBody(house_.models()[*model].name, path == "/api/chat",
                                      UnixSeconds())};
  }
  return Pass(request, kind, *model, asked->keep_alive);
}

HttpReply HouseRoutes::Pass(HttpRequest& request, ApiKind kind, size_t model,
                            std::optional<double> keep_alive) const {
  auto visit = house_.Enter(model, request.is_gone);
  if (!visit) return ErrorReply(kind, visit.error(), *request.record);
  visit->set_keep_alive(keep_alive);
  const ApiError died = Died(house_.models()[model].name);
  std::optional<WorkerLink> link = links_.Take(visit->socket());
  if (!link) return ErrorReply(kind, died, *request.record);
  const auto passing = std::make_shared<Passing>(*std::move(visit), *std::move(link), links_);
  std::string head = HeadFor(request);
  constexpr size_t kSmallBody = size_t{64} << 10;
  const bool is_small = request.body.size() <= kSmallBody;
  if (is_small) head += request.body;  // one wake-up of the process
  Outcome outcome = passing->link.Send(head, request.is_gone);
  if (outcome == Outcome::kDone && !is_small) {
    outcome = passing->link.Send(request.body, request.is_gone);
  }
  std::string().swap(request.body);
  // A process may refuse a request before it has read the whole.
  PassedReply& reply = passing->reply;
  const auto is_whole = [&] {
    return reply.has_head() && (!reply.has_length() || reply.length() > kMostWhole);
  };
  if (outcome != Outcome::kClientGone) outcome = Outcome::kDone;
  while (outcome == Outcome::kDone && !reply.is_over() && !is_whole()) {
    outcome = passing->link.Read(reply, passing->body, request.is_gone);
  }
  if (outcome != Outcome::kDone) return ErrorReply(kind, died, *request.record);
  request.record->route = kPassedOn;
  HttpReply passed{.status = reply.status(), .type = reply.type(), .headers = reply.headers()};
  // A stream that has come at once stays a stream, so that clients see one form.
  if (reply.is_over() && reply.has_length()) {
    passed.body = std::move(passing->body);
  } else {
    passed.stream = [passing, event = ErrorEvent(kind, reply, died, request)](HttpStream& stream) {
      StreamOn(*passing, stream, event);
    };
  }
  return passed;
}

}  // namespace moestro
