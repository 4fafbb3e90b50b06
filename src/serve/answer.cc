// SPDX-License-Identifier: MIT
#include "serve/answer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/server_bodies.h"
#include "base/number.h"
#include "base/terminal.h"
#include "serve/relay.h"
#include "serve/save_task.h"
#include "serve/work.h"

namespace moestro {
namespace {

HttpReply Streamed(const ReadyModel& model, const std::shared_ptr<Work>& work,
                   const std::shared_ptr<ReplyWriter>& writer, RequestRecord& record) {
  HttpReply reply{.type = StreamType(work->request.kind),
                  .headers = {{"Cache-Control", "no-cache"}}};
  // Made here, so that jobs are withdrawn even if the stream never begins.
  auto guard = std::make_shared<JobGuard>(model.scheduler, work->jobs);
  reply.stream = [work, writer, guard, &record](HttpStream& out) {
    const Client client{.write = [&](std::string_view bytes) { return out.Write(bytes); },
                        .is_gone = [&] { return !out.is_open(); },
                        .record = record,
                        .wants_pings = true};
    const ApiStatus status = Relay(*work, *writer, client, *guard);
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
  const ApiStatus status = Relay(work, writer, client, guard);
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
  ApiResult<Work> made = MakeWork(model, kind, std::move(request.body));
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
