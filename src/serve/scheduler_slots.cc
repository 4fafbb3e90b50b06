// SPDX-License-Identifier: MIT
// A scheduler's places: who runs where, and what clients ask of them between two steps. A place is
// no cache: it only remembers which text was kept last of those that ran there.
#include <algorithm>
#include <mutex>
#include <utility>

#include "serve/scheduler.h"

namespace moestro {

bool Scheduler::IsTaken(uint32_t place) const {
  return std::ranges::any_of(running_, [&](const auto& text) { return text->place() == place; });
}

void Scheduler::Start(std::unique_ptr<RunningText> text) {
  uint32_t place = 0;
  while (IsTaken(place)) ++place;
  text->set_place(place);
  running_.push_back(std::move(text));
  is_shown_ = false;
}

void Scheduler::DoSlotTask() {
  std::shared_ptr<SlotTask> task;
  {
    const std::lock_guard lock(mutex_);
    if (slot_tasks_.empty()) return;
    task = std::move(slot_tasks_.front());
    slot_tasks_.pop_front();
  }
  if (task->is_cancelled()) return;
  const double began = clock_();
  ApiResult<SlotFigures> done = Do(*task);
  if (done) done->seconds = clock_() - began;
  Publish(true);  // who is told sees it in the reports
  task->Tell(std::move(done));
}

ApiResult<SlotFigures> Scheduler::Do(const SlotTask& task) {
  if (task.place() >= options_.parallel) {
    return BadRequest("id_slot", Format("there is no place {}; this server has {}, from 0 on",
                                        task.place(), options_.parallel));
  }
  if (IsTaken(task.place())) {
    return std::unexpected(ApiError{
        .status = 409,
        .type = "invalid_request_error",
        .message = Format("a text is being computed at place {}; ask again when it has ended",
                          task.place()),
        .code = "slot_busy"});
  }
  switch (task.action()) {
    case SlotAction::kSave:
      return SaveSlot(task);
    case SlotAction::kRestore:
      return RestoreSlot(task);
    case SlotAction::kErase:
      break;
  }
  const std::vector<Token> tokens = std::exchange(place_texts_[task.place()], {});
  return SlotFigures{.tokens = kept_.Drop(tokens) ? tokens.size() : 0};
}

ApiResult<SlotFigures> Scheduler::SaveSlot(const SlotTask& task) {
  const std::optional<Sequence> text = kept_.ForkWhole(place_texts_[task.place()]);
  if (!text) {
    return std::unexpected(ApiError{
        .status = 404,
        .type = "invalid_request_error",
        .message = Format("nothing is kept of place {}: no text has ended there, or it had to make "
                          "room for others; send its prompt again first",
                          task.place()),
        .code = "slot_empty"});
  }
  TRY(const uint64_t bytes, slot_files_.Save(*text, task.file()));
  return SlotFigures{.tokens = text->position(), .bytes = bytes};
}

ApiResult<SlotFigures> Scheduler::RestoreSlot(const SlotTask& task) {
  TRY(const uint32_t length, slot_files_.Length(task.file()));
  // Asked before kept prefixes go, which would be for nothing.
  if (!Fits(length)) {
    return std::unexpected(ApiError{
        .status = 503,
        .type = "unavailable_error",
        .message = Format("the texts that are being computed leave no room for {} tokens; ask "
                          "again when they have ended",
                          length)});
  }
  DropFor(length + kSlack);
  TRY(Sequence restored, slot_files_.Restore(task.file()));
  const std::span<const Token> tokens = restored.tokens();
  place_texts_[task.place()].assign(tokens.begin(), tokens.end());
  kept_.Keep(std::move(restored), false, clock_());
  return SlotFigures{.tokens = length, .bytes = slot_files_.BytesOf(task.file())};
}

}  // namespace moestro
