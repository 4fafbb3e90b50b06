// SPDX-License-Identifier: MIT
// A scheduler's step: which rows, computed, and what becomes of texts that cannot go on.
#include <algorithm>
#include <mutex>
#include <ranges>
#include <utility>

#include "base/log.h"
#include "serve/scheduler.h"

namespace moestro {

void Scheduler::Step() {
  std::vector<StepPlanner::Text> texts;
  for (const auto& text : running_) {
    texts.push_back({.is_prompt = !text->is_written(),
                     .waiting = static_cast<uint32_t>(text->waiting().size())});
  }
  const std::vector<uint32_t> rows = planner_.Plan(texts);
  if (!MakeRoomFor(rows)) return;  // somebody gave up: plan again
  uint32_t prompt_rows = 0;
  bool others_wait = false;
  {
    const std::lock_guard lock(mutex_);
    prompts_in_step_.clear();
    for (size_t i = 0; i < rows.size(); ++i) {
      others_wait = others_wait || (rows[i] == 0 && !texts[i].is_prompt);
      if (!texts[i].is_prompt) continue;
      prompt_rows += rows[i];
      if (rows[i] > 0) prompts_in_step_.push_back(&running_[i]->job());
    }
  }
  const double began = clock_();
  const Status status = Compute(rows);
  const double seconds = clock_() - began;
  {
    const std::lock_guard lock(mutex_);
    prompts_in_step_.clear();
  }
  if (status) {
    planner_.StepDone(prompt_rows, seconds, others_wait);
    ++totals_.steps;
    totals_.prompt_tokens += prompt_rows;
    (prompt_rows > 0 ? totals_.prompt_seconds : totals_.text_seconds) += seconds;
  } else if (status.error().code != Errc::kInterrupted) {
    FailedStep(rows, status.error());
  }
  RemoveEnded();
}

// The rows' tokens into their sequences, and the logits of those that have all of theirs.
Status Scheduler::Compute(std::span<const uint32_t> rows) {
  Batch batch;
  std::vector<RunningText*> takers;  // [row]: who wants the logits
  for (size_t i = 0; i < rows.size(); ++i) {
    RunningText& text = *running_[i];
    const std::span<const Token> waiting = text.waiting();
    const RowKind kind = text.is_written() ? RowKind::kDecode : RowKind::kPrompt;
    for (uint32_t n = 0; n < rows[i]; ++n) {
      const bool is_last = n + 1 == waiting.size();
      batch.rows.push_back({.sequence = text.sequence().id(),
                            .position = text.sequence().position() + n,
                            .token = waiting[n],
                            .kind = kind,
                            .wants_logits = is_last});
      takers.push_back(is_last ? &text : nullptr);
    }
  }
  return engine_.Step(batch, [&](size_t row, std::span<const float> logits) {
    RunningText& text = *takers[row];
    ++totals_.generated;
    if (text.generated() > 0) totals_.gap_ms.Add((clock_() - text.told()) * 1e3);
    if (text.Take(logits, engine_.n_ctx())) ended_.push_back(&text);
  });
}

// A read that failed may concern one text's experts only: each is tried alone, and those that fail
// again end.
void Scheduler::FailedStep(std::span<const uint32_t> rows, const Error& error) {
  LogWarning("a step failed: {}", error.message);
  std::vector<uint32_t> alone(rows.size(), 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0 || std::ranges::contains(ended_, running_[i].get())) continue;
    alone[i] = rows[i];
    const Status status = Compute(alone);
    alone[i] = 0;
    if (status || status.error().code == Errc::kInterrupted) continue;
    running_[i]->Fail(status.error());
    ended_.push_back(running_[i].get());
  }
}

// True: the rows have positions. False: somebody gave up.
bool Scheduler::MakeRoomFor(std::span<const uint32_t> rows) {
  uint32_t needed = 0;
  for (const uint32_t n : rows) needed += n > 0 ? n + kSlack : 0;
  while (engine_.kv_room().free < needed) {
    if (kept_.DropOldest()) continue;
    if (running_.size() == 1) return true;  // it has all there is, so it fits
    std::unique_ptr<RunningText> newest = std::move(running_.back());
    running_.pop_back();
    newest->GiveUp(engine_.NewSequence());
    paused_.push_front(std::move(newest));
    return false;
  }
  return true;
}

void Scheduler::RemoveEnded() {
  for (const RunningText* ended : ended_) {
    const auto at = std::ranges::find(running_, ended, &std::unique_ptr<RunningText>::get);
    ++(ended->has_failed() ? totals_.failed : totals_.finished);
    Keep(**at);
    running_.erase(at);
  }
  ended_.clear();
}

void Scheduler::RemoveCancelled() {
  const auto is_cancelled = [](const auto& text) { return text->job().is_cancelled(); };
  for (auto* texts : {&running_, &paused_}) {
    for (auto& text : *texts | std::views::filter(is_cancelled)) {
      ++totals_.cancelled;
      Keep(*text);
    }
    std::erase_if(*texts, is_cancelled);
  }
  const std::lock_guard lock(mutex_);
  totals_.cancelled += std::erase_if(waiting_, [](const auto& job) { return job->is_cancelled(); });
}

}  // namespace moestro
