// SPDX-License-Identifier: MIT
#include "serve/place_reply.h"

#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "api/place_bodies.h"
#include "base/printable.h"
#include "serve/answer.h"
#include "serve/place_task.h"

namespace moestro {
namespace {

constexpr std::chrono::milliseconds kPatience{100};  // longest time until a client is missed

std::optional<uint32_t> NumberOf(std::string_view text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

ApiResult<std::shared_ptr<PlaceTask>> TaskOf(const ReadyModel& model, const HttpRequest& request,
                                             std::string_view place) {
  const std::optional<uint32_t> number = NumberOf(place);
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
  TRY(const PlaceAction action, ParsePlaceAction(request.query("action").value_or("")));
  std::string file;
  if (action != PlaceAction::kErase) {
    TRY(file, ParseTextFile(request.body));
  }
  return std::make_shared<PlaceTask>(action, *number, std::move(file));
}

}  // namespace

HttpReply ChangePlace(const ReadyModel& model, const HttpRequest& request, std::string_view place) {
  const auto made = TaskOf(model, request, place);
  if (!made) return ErrorReply(ApiKind::kChat, made.error(), *request.record);
  PlaceTask& task = **made;
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
