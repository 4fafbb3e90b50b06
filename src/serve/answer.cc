// SPDX-License-Identifier: MIT
#include "serve/answer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api/server_bodies.h"
#include "base/number.h"
#include "base/terminal.h"
#include "base/work_limit.h"
#include "chat/answer_parser.h"
#include "serve/job.h"
#include "serve/request_log.h"
#include "serve/save_task.h"
#include "serve/scheduler.h"
#include "serve/work.h"

namespace moestro {
namespace {

constexpr std::chrono::milliseconds kClientPatience{100};  // longest time until a client is missed
constexpr std::chrono::seconds kPingEvery{5};

// Withdraws, in the destructor, the jobs that have not ended.
class JobGuard {
 public:
  JobGuard(Scheduler& scheduler, std::vector<std::shared_ptr<Job>> jobs)
      : scheduler_(scheduler), jobs_(std::move(jobs)) {}
  ~JobGuard() {
    for (const auto& job : jobs_) scheduler_.Withdraw(*job);
  }
  JobGuard(const JobGuard&) = delete;
  JobGuard& operator=(const JobGuard&) = delete;
  // Call when the first job that is left has ended.
  void Ended() { jobs_.erase(jobs_.begin()); }

 private:
  Scheduler& scheduler_;
  std::vector<std::shared_ptr<Job>> jobs_;
};

// The functions by which a reply reaches a client, and the record of the request.
struct Client {
  std::function<bool(std::string_view)> write;  // false: the client is gone
  std::function<bool()> is_gone;
  RequestRecord& record;
  bool wants_pings = false;
};

AnswerEnd EndOf(StopReason reason) {
  switch (reason) {
    case StopReason::kLimit:
    case StopReason::kContextFull:
    case StopReason::kTimeLimit:
      return AnswerEnd::kCut;
    case StopReason::kStopString:
      return AnswerEnd::kStopped;
    case StopReason::kEndToken:
    case StopReason::kInterrupted:
    case StopReason::kOutputClosed:
      break;
  }
  return AnswerEnd::kWhole;
}

FinishReason ReasonOf(AnswerEnd end, const AnswerParser& parser) {
  if (end == AnswerEnd::kCut) return FinishReason::kLength;
  // A call that a stop string ended is none to make.
  return parser.has_calls() && !parser.is_in_call() ? FinishReason::kToolCalls
                                                    : FinishReason::kStop;
}

// One answer's way from events to deltas.
class ChoiceReader {
 public:
  ChoiceReader(const Work& work, uint32_t choice)
      : is_chat_(!GoesOn(work.request)), parser_(work.style, work.id_seed + choice) {}

  ReplyPart Read(TextPiece text) {
    ReplyPart part;
    part.logprobs = std::move(text.logprobs);
    if (is_chat_) {
      const bool was_thinking = parser_.is_thinking();
      part.deltas = parser_.Push(text.text);
      // The marks around thoughts count as thoughts.
      if (was_thinking || parser_.is_thinking()) reasoning_tokens_ += text.tokens;
    } else if (!text.text.empty()) {
      part.deltas.emplace_back().text = std::move(text.text);
    }
    return part;
  }
  ReplyPart Rest(StopReason reason) {
    ReplyPart part;
    if (is_chat_) part.deltas = parser_.Finish(EndOf(reason));
    return part;
  }
  ReplyEnd End(const TextEnd& end) const {
    ReplyEnd told{
        .reason = ReasonOf(EndOf(end.reason), parser_), .stop = end.stop, .usage = end.usage};
    told.usage.reasoning_tokens = reasoning_tokens_;
    return told;
  }

 private:
  bool is_chat_;
  AnswerParser parser_;
  uint32_t reasoning_tokens_ = 0;
};

// The prompt as the answer's first part.
ReplyPart Echo(const Work& work, uint32_t choice, std::vector<TokenLogprob> logprobs = {}) {
  ReplyPart part;
  part.logprobs = std::move(logprobs);
  part.deltas.emplace_back().text = work.echoes[choice / work.request.n];
  return part;
}

ApiError TimeIsOver(const Job& job) {
  return {.status = 504,
          .type = "timeout_error",
          .message = Format("the request's {} s were over before its answer began; ask when the "
                            "server is less busy, or allow more time",
                            job.options().seconds),
          .code = "timeout"};
}

// Waits for the job's next event, with pings to the client meanwhile; nullopt: the client is gone.
// Stops waiting for a job without any event when the job's time is over.
std::optional<JobEvent> NextEvent(Job& job, bool has_begun, ReplyWriter& writer,
                                  const Client& client) {
  auto pinged = std::chrono::steady_clock::now();
  while (true) {
    if (std::optional<JobEvent> event = job.Next(kClientPatience)) return event;
    if (client.is_gone()) return std::nullopt;
    if (!has_begun && SteadySeconds() > job.deadline()) return TimeIsOver(job);
    const auto now = std::chrono::steady_clock::now();
    if (!client.wants_pings || now - pinged < kPingEvery) continue;
    pinged = now;
    if (!client.write(writer.Ping())) return std::nullopt;
  }
}

class ChoiceRelay {
 public:
  ChoiceRelay(const Work& work, uint32_t choice, ReplyWriter& writer, const Client& client)
      : work_(work), choice_(choice), writer_(writer), client_(client), reader_(work, choice) {}

  bool has_ended() const { return has_ended_; }  // the end is in the client's record, too
  // True: this choice has been sent to its end. False: the client is gone.
  ApiResult<bool> Run() {
    Job& job = *work_.jobs[choice_];
    const bool echoes_at_once = work_.request.echo && !job.scores_prompt();
    if (echoes_at_once && !Write(Echo(work_, choice_))) return false;
    bool has_begun = false;
    while (true) {
      std::optional<JobEvent> event = NextEvent(job, has_begun, writer_, client_);
      if (!event || HasLeft()) return false;
      if (auto* error = std::get_if<ApiError>(&*event)) return std::unexpected(std::move(*error));
      if (auto* end = std::get_if<TextEnd>(&*event)) return End(*end);
      has_begun = has_begun || std::holds_alternative<TextPiece>(*event);
      if (!Tell(*std::move(event))) return false;
    }
  }

 private:
  // Whether the client has left, checked now and then also while events come faster than
  // NextEvent() waits: a reply that is not streamed writes nothing that could fail.
  bool HasLeft() {
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < kClientPatience) return false;
    looked_ = now;
    return client_.is_gone();
  }
  bool Tell(JobEvent event) {
    if (auto* text = std::get_if<TextPiece>(&event)) return Write(reader_.Read(std::move(*text)));
    if (auto* prompt = std::get_if<PromptScores>(&event)) {
      return Write(Echo(work_, choice_, std::move(prompt->logprobs)));
    }
    const auto& progress = std::get<PromptProgress>(event);
    return client_.write(writer_.Progress(progress, choice_));
  }
  bool Write(const ReplyPart& part) { return client_.write(writer_.Part(part, choice_)); }
  bool End(const TextEnd& end) {
    const std::string last = writer_.Part(reader_.Rest(end.reason), choice_);
    ReplyEnd told = reader_.End(end);
    // A prompt counts once, with the first of its answers.
    if (choice_ % work_.request.n != 0) {
      told.usage.prompt_tokens = 0;
      told.usage.cached_tokens = 0;
      told.usage.prompt_seconds = 0.0;
    }
    has_ended_ = true;
    NoteEnd(told, SteadySeconds() - work_.submitted, client_.record);
    return client_.write(last + writer_.EndChoice(told, choice_));
  }

  const Work& work_;
  uint32_t choice_;
  ReplyWriter& writer_;
  const Client& client_;
  ChoiceReader reader_;
  bool has_ended_ = false;
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
};

// Adds the computed tokens of answers whose client has gone.
void NoteUnfinished(std::span<const std::shared_ptr<Job>> jobs, RequestRecord& record) {
  for (const auto& job : jobs) record.completion_tokens += job->generated();
}

// Stores an answer that has come to its end, before the client gets that end and can ask for the
// answer.
void Store(ResponseStore* store, const Work& work, const std::string& owner, ReplyWriter& writer) {
  if (store == nullptr) return;
  const std::optional<StoredAnswer> answer = writer.ToStore();
  if (answer && !store->Save(*answer, work.request.items, owner)) writer.NotStored();
}

// Writes all choices in order, in the writer's form. Errors: the error of a job that failed; 504: a
// job's time was over before the answer began.
ApiStatus Relay(const Work& work, ResponseStore* store, ReplyWriter& writer, const Client& client,
                JobGuard& guard) {
  client.record.prompt_tokens = PromptLength(work);
  client.record.finish = "cancelled";  // until the answer has ended
  if (!client.write(writer.Begin())) return {};
  for (uint32_t choice = 0; choice < work.jobs.size(); ++choice) {
    ChoiceRelay relay(work, choice, writer, client);
    const ApiResult<bool> is_said = relay.Run();
    if (is_said && *is_said) {
      guard.Ended();
      continue;
    }
    client.record.finish = is_said ? "cancelled" : "error";
    const std::span jobs(work.jobs);
    NoteUnfinished(jobs.subspan(choice + (relay.has_ended() ? 1 : 0)), client.record);
    return is_said ? ApiStatus() : std::unexpected(is_said.error());
  }
  Store(store, work, client.record.owner, writer);
  client.write(writer.End());
  return {};
}

HttpReply Streamed(const ReadyModel& model, const std::shared_ptr<Work>& work,
                   const std::shared_ptr<ReplyWriter>& writer, RequestRecord& record) {
  HttpReply reply{.type = StreamType(work->request.kind),
                  .headers = {{"Cache-Control", "no-cache"}}};
  // Made here, so that jobs are withdrawn even if the stream never begins.
  auto guard = std::make_shared<JobGuard>(model.scheduler, work->jobs);
  reply.stream = [work, store = model.responses, writer, guard, &record](HttpStream& out) {
    const Client client{.write = [&](std::string_view bytes) { return out.Write(bytes); },
                        .is_gone = [&] { return !out.is_open(); },
                        .record = record,
                        .wants_pings = true};
    const ApiStatus status = Relay(*work, store, *writer, client, *guard);
    if (!status) client.write(writer->Failed(status.error()));
  };
  return reply;
}

HttpReply Whole(const ReadyModel& model, const Work& work, ReplyWriter& writer,
                const HttpRequest& request) {
  JobGuard guard(model.scheduler, work.jobs);
  HttpReply reply;
  const Client client{.write =
                          [&](std::string_view bytes) {
                            reply.body += bytes;
                            return true;
                          },
                      .is_gone = request.is_gone,
                      .record = *request.record};
  const ApiStatus status = Relay(work, model.responses, writer, client, guard);
  return status ? reply : ErrorReply(work.request.kind, status.error(), *request.record);
}

void AddWarnings(const ApiRequest& request, HttpReply& reply) {
  constexpr size_t kMostBytes = 2048;
  std::string all;
  for (const std::string& warning : request.warnings) {
    LogInfo("a client is warned: {}", warning);
    if (!all.empty()) all += "; ";
    all += warning;
  }
  if (all.empty()) return;
  // A header is ASCII.
  for (char& c : all) {
    if (c < ' ' || c > '~') c = '?';
  }
  reply.headers.emplace_back("X-Moestro-Warning", all.substr(0, kMostBytes));
}

// Whether only llama-server has such a path.
bool IsLlamaServersOwn(std::string_view path) {
  constexpr std::array<std::string_view, 4> kOwn = {"/completion", "/tokenize", "/detokenize",
                                                    "/apply-template"};
  return std::ranges::any_of(kOwn, [&](std::string_view own) { return path.ends_with(own); });
}

}  // namespace

HttpReply ErrorReply(ApiKind kind, const ApiError& error, const RequestRecord& record) {
  const bool is_llamas = error.overflow && IsLlamaServersOwn(record.path);
  HttpReply reply{.status = error.status,
                  .body = is_llamas ? LlamaOverflowBody(*error.overflow)
                                    : ErrorBodyFor(kind, error, record.id)};
  // OpenAI's clients repeat a request after any 5xx and 429; only waiting helps with the latter.
  if (error.status == 429 || error.status == 503) reply.headers.emplace_back("Retry-After", "2");
  if (error.status == 500 || error.status == 501 || error.status == 504) {
    reply.headers.emplace_back("x-should-retry", "false");
  }
  return reply;
}

HttpReply AnswerRequest(const ReadyModel& model, ApiKind kind, HttpRequest& request) {
  ApiResult<Work> made = MakeWork(model, kind, std::move(request.body), request.record->owner);
  if (!made) return ErrorReply(kind, made.error(), *request.record);
  const auto work = std::make_shared<Work>(*std::move(made));
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const ReplyHead head{.id = Format("{:016x}", RandomBits()),
                       .model = model.card.id,
                       .fingerprint = {},
                       .created = now,
                       .request_id = request.record->id,
                       .prompt_tokens = PromptLength(*work)};
  if (work->request.is_load) return {.body = OllamaLoadedBody(work->request, head)};
  const std::shared_ptr<ReplyWriter> writer = MakeReplyWriter(work->request, head);
  HttpReply reply = work->request.stream ? Streamed(model, work, writer, *request.record)
                                         : Whole(model, *work, *writer, request);
  AddWarnings(work->request, reply);
  return reply;
}

namespace {

constexpr std::chrono::milliseconds kPatience{100};  // longest time until a client is missed

ApiResult<std::shared_ptr<SaveTask>> TaskOf(const ReadyModel& model, const HttpRequest& request,
                                            std::string_view place) {
  const std::optional<uint32_t> number = ParseNumber<uint32_t>(place);
  if (!number) {
    return std::unexpected(ApiError{
        .status = 404,
        .type = "invalid_request_error",
        .message = Format("there is no place \"{}\"; they are numbers", Printable(place, 40))});
  }
  if (!model.scheduler.has_saved_texts()) {
    ApiError error = NotOffered("saving and restoring of places");
    error.message += "; start it with --slot-save-path DIR";
    return std::unexpected(std::move(error));
  }
  TRY(const SaveAction action, ParsePlaceAction(request.query("action").value_or("")));
  std::string file;
  if (action != SaveAction::kErase) {
    TRY(file, ParseTextFile(request.body));
  }
  return std::make_shared<SaveTask>(action, *number, std::move(file));
}

}  // namespace

HttpReply ChangePlace(const ReadyModel& model, const HttpRequest& request, std::string_view place) {
  const auto made = TaskOf(model, request, place);
  if (!made) return ErrorReply(ApiKind::kChat, made.error(), *request.record);
  SaveTask& task = **made;
  const ApiStatus submitted = model.scheduler.Submit(*made);
  if (!submitted) return ErrorReply(ApiKind::kChat, submitted.error(), *request.record);
  while (true) {
    if (const auto done = task.Wait(kPatience)) {
      if (!*done) return ErrorReply(ApiKind::kChat, done->error(), *request.record);
      return {.body = PlaceBody(task.action(), task.place(), task.file(), **done)};
    }
    if (!request.is_gone()) continue;
    task.Cancel();
    return {};
  }
}

}  // namespace moestro
