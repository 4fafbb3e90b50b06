// SPDX-License-Identifier: MIT
// A scheduler's step: chooses rows, computes them, and handles texts that cannot go on.
#include <algorithm>
#include <deque>
#include <memory>
#include <ranges>
#include <utility>

#include "base/log.h"
#include "serve/scheduler.h"

namespace moestro {
namespace {

// Appends the rows of a text's draft behind the row of the text's newest token. A state cannot be
// cut back, so it is kept after each row that may be the last right one (see EngineStepper).
void AddDraft(const EngineFacts& facts, RunningText& text, Batch& batch) {
  const bool keeps = facts.state_bytes > 0 && !facts.divides_at_kept;
  for (const Token token : text.draft()) {
    BatchRow& before = batch.rows.back();
    before.is_kept = before.is_kept || keeps;
    batch.rows.push_back({.sequence = before.sequence,
                          .position = before.position + 1,
                          .token = token,
                          .kind = RowKind::kDecode,
                          .wants_logits = true});
  }
  batch.foreseen = text.TakeForeseen();
}

// The rows of a step, and each row's text.
struct StepRows {
  Batch batch;
  std::vector<RunningText*> takers;  // [row]
};

// Puts the next rows[i] tokens of each text, and drafts behind them, into a batch. `every`: see
// RunningText::IsKeptAfter().
StepRows RowsOf(const EngineFacts& facts, const std::deque<std::unique_ptr<RunningText>>& texts,
                std::span<const uint32_t> rows, uint32_t every) {
  StepRows step;
  Batch& batch = step.batch;
  for (size_t i = 0; i < rows.size(); ++i) {
    RunningText& text = *texts[i];
    const std::span<const Token> waiting = text.waiting();
    const RowKind kind = text.is_written() ? RowKind::kDecode : RowKind::kPrompt;
    for (uint32_t n = 0; n < rows[i]; ++n) {
      const bool is_last = n + 1 == waiting.size();
      const uint32_t position = text.sequence().position() + n;
      batch.rows.push_back({.sequence = text.sequence().id(),
                            .position = position,
                            .token = waiting[n],
                            .kind = kind,
                            .wants_logits = is_last || text.wants_logits_at(position),
                            .is_kept = facts.has_states && text.IsKeptAfter(position + 1, every)});
    }
    if (rows[i] > 0 && !text.draft().empty()) AddDraft(facts, text, batch);
    step.takers.resize(batch.size(), &text);
  }
  return step;
}

// Finds the text that drafts next: the first one worth a draft behind the place that drafted last,
// around all places; null: no draft is worth a step.
RunningText* NextToDraft(std::span<RunningText* const> texts, uint32_t n_ctx, uint32_t last) {
  RunningText* next = nullptr;
  const auto comes_first = [&](const RunningText& a, const RunningText& b) {
    return std::pair(a.place() <= last, a.place()) < std::pair(b.place() <= last, b.place());
  };
  for (RunningText* text : texts) {
    if (text->wanted_draft(n_ctx) == 0) continue;
    if (next == nullptr || comes_first(*text, *next)) next = text;
  }
  return next;
}

}  // namespace

void Scheduler::Step() {
  std::vector<StepPlanner::Text> texts;
  std::vector<uint32_t> rows;
  // If a text gives up its positions, the others go on at once. The text may be taken up again
  // before the next step.
  do {
    texts.clear();
    for (const auto& text : running_) {
      texts.push_back({.is_prompt = !text->is_written(),
                       .waiting = static_cast<uint32_t>(text->waiting().size())});
    }
    rows = planner_.Plan(texts);
  } while (!MakeRoomFor(rows));
  uint32_t prompt_rows = 0;
  bool others_wait = false;
  std::vector<const Job*> prompts;
  for (size_t i = 0; i < rows.size(); ++i) {
    others_wait = others_wait || (rows[i] == 0 && !texts[i].is_prompt);
    if (!texts[i].is_prompt) continue;
    prompt_rows += rows[i];
    if (rows[i] > 0) prompts.push_back(&running_[i]->job());
  }
  RunningText* drafted = nullptr;
  if (prompt_rows == 0) {
    const Result<RunningText*> one = DraftFor(rows);
    if (!one) return;  // the next step is planned anew
    drafted = *one;
  }
  inbox_.SetPromptsInStep(std::move(prompts));
  const double began = clock_();
  double aside = 0.0;
  const Status status = prompt_rows > 0 ? ComputePrompts(rows, aside) : Compute(rows);
  const double seconds = clock_() - began - aside;
  inbox_.SetPromptsInStep({});
  if (status) {
    for (size_t i = 0; i < rows.size(); ++i) {
      RunningText& text = *running_[i];
      const uint32_t position = text.sequence().position();
      const bool is_under_way = texts[i].is_prompt && rows[i] > 0 && position < text.n_prompt();
      if (is_under_way) text.SayProgress(position);
    }
    planner_.StepDone(prompt_rows, seconds, others_wait);
    if (aside > 0.0) planner_.TextsHad(aside);
    ++totals_.steps;
    totals_.prompt_tokens += prompt_rows;
    (prompt_rows > 0 ? totals_.prompt_seconds : totals_.text_seconds) += seconds;
    if (prompt_rows == 0) NoteTextsStep(rows, drafted, seconds);
  } else {
    if (drafted != nullptr) drafted->DiscardDraft();
    if (status.error().code != Errc::kInterrupted) FailedStep(rows, status.error());
  }
  RemoveEnded();
}

// Makes a draft for a text of a step of texts; null: no text drafts. One text drafts at a time, in
// turn, so that the step's length shows the cost of that draft. Kept prefixes make room for a
// draft, running texts do not.
Result<RunningText*> Scheduler::DraftFor(std::span<const uint32_t> rows) {
  std::vector<RunningText*> texts;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] > 0) texts.push_back(running_[i].get());
  }
  RunningText* const next = NextToDraft(texts, engine_.n_ctx(), drafted_last_);
  if (next == nullptr) return next;
  const auto n_texts = static_cast<uint32_t>(texts.size());
  const uint32_t most = std::min(next->wanted_draft(engine_.n_ctx()), engine_.chunk() - n_texts);
  const uint32_t positions = n_texts * (1 + PrefixCache::kSlack) + most;
  while (!prefixes_.HasRoom(positions, n_texts)) {
    if (!prefixes_.DropOldestFor(positions)) return nullptr;
  }
  if (most == 0) return nullptr;
  TRY_STATUS(next->Draft(most));
  drafted_last_ = next->place();
  return next->draft().empty() ? nullptr : next;
}

// Notes the step's length for the texts that draft.
void Scheduler::NoteTextsStep(std::span<const uint32_t> rows, RunningText* drafted,
                              double seconds) {
  const auto n_texts =
      static_cast<uint32_t>(std::ranges::count_if(rows, [](uint32_t n) { return n > 0; }));
  if (drafted != nullptr) return drafted->EndDraft(seconds, n_texts);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] > 0) running_[i]->NotePlainStep(seconds, n_texts);
  }
}

// Gives the logits of a row to its text.
void Scheduler::Take(RunningText& text, const BatchRow& row, std::span<const float> logits) {
  if (text.wants_logits_at(row.position)) return text.Score(row.position, logits);
  if (!text.GoesOnFrom(row.position, row.token)) return;  // a wrong draft
  ++totals_.generated;
  if (text.generated() == 0) is_shown_ = false;  // the prompt is computed
  if (text.generated() > 0) totals_.gap_ms.Add((clock_() - text.told()) * 1e3);
  if (text.Take(logits, engine_.n_ctx())) ended_.push_back(&text);
}

// Computes the rows; texts whose last waiting token is among them get the logits.
Status Scheduler::Compute(std::span<const uint32_t> rows) {
  const StepRows step = RowsOf(engine_.facts(), running_, rows, options_.checkpoint_every);
  return engine_.Step(step.batch, [&](size_t row, std::span<const float> logits) {
    Take(*step.takers[row], step.batch.rows[row], logits);
  });
}

// Computes prompts' rows piece by piece. Texts get their tokens between two pieces when it is time;
// `aside`: seconds that the texts took. kInterrupted: the client of a prompt has gone.
Status Scheduler::ComputePrompts(std::span<const uint32_t> rows, double& aside) {
  const StepRows step = RowsOf(engine_.facts(), running_, rows, options_.checkpoint_every);
  TRY(const std::unique_ptr<StepRun> run,
      engine_.Begin(step.batch, [&](size_t row, std::span<const float> logits) {
        Take(*step.takers[row], step.batch.rows[row], logits);
      }));
  double piece = 0.0;  // seconds of the longest one
  while (true) {
    const double begins = clock_();
    if (IsTimeForTexts(rows, piece)) {
      TRY_STATUS(StepTexts(rows));
      aside += clock_() - begins;
    }
    if (inbox_.is_stopped() || IsAnyCancelled(rows)) {
      return Fail(Errc::kInterrupted, "a client has gone");
    }
    const double computes = clock_();
    TRY(const bool has_ended, run->Advance());
    if (has_ended) return {};
    piece = std::max(piece, clock_() - computes);
  }
}

// Whether texts that wait for a token would wait too long until the next piece's end.
bool Scheduler::IsTimeForTexts(std::span<const uint32_t> rows, double piece) const {
  const double now = clock_();
  double waited = 0.0;
  for (size_t i = 0; i < running_.size(); ++i) {
    if (WaitsForToken(i, rows)) waited = std::max(waited, now - running_[i]->told());
  }
  return waited > 0.0 && planner_.is_time_for_texts(waited, piece);
}

bool Scheduler::IsAnyCancelled(std::span<const uint32_t> rows) const {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] > 0 && running_[i]->job().is_cancelled()) return true;
  }
  return false;
}

// True if the text is being written, was not cancelled, has no row in the prompts' step and did not
// end during that step.
bool Scheduler::WaitsForToken(size_t text, std::span<const uint32_t> rows) const {
  const RunningText& its = *running_[text];
  return rows[text] == 0 && its.is_written() && !its.job().is_cancelled() &&
         !std::ranges::contains(ended_, &its);
}

// Computes a token for each waiting text within a prompts' step with these rows; no text leaves
// before that step ends.
Status Scheduler::StepTexts(std::span<const uint32_t> rows) {
  std::vector<uint32_t> texts(rows.size(), 0);
  uint32_t n = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (WaitsForToken(i, rows)) texts[i] = 1;
    n += texts[i];
  }
  while (!prefixes_.HasRoom(n * (1 + PrefixCache::kSlack), n)) {
    if (!prefixes_.DropOldestFor(n * (1 + PrefixCache::kSlack))) return {};
  }
  const double began = clock_();
  const Status status = Compute(texts);
  const double seconds = clock_() - began;
  if (status) {
    planner_.StepDone(0, seconds, false);
    ++totals_.steps;
    totals_.text_seconds += seconds;
  } else if (status.error().code == Errc::kDevice || engine_.closed()) {
    return status;
  } else if (status.error().code != Errc::kInterrupted) {
    FailedStep(texts, status.error());
  }
  Publish(false);
  return {};
}

// Tries each text alone after a failed step, since a read that failed may concern one text's
// experts only; a text that fails again ends.
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

// True: the rows have positions. False: a text gave up.
bool Scheduler::MakeRoomFor(std::span<const uint32_t> rows) {
  uint32_t needed = 0;
  uint32_t n_texts = 0;
  for (const uint32_t n : rows) {
    needed += n > 0 ? n + PrefixCache::kSlack : 0;
    n_texts += n > 0 ? 1 : 0;
  }
  while (!prefixes_.HasRoom(needed, n_texts)) {
    if (prefixes_.DropOneFor(needed)) continue;
    if (running_.size() == 1) return true;  // a single text fits, since it may take everything
    std::unique_ptr<RunningText> newest = std::move(running_.back());
    running_.pop_back();
    newest->GiveUp(engine_.NewSequence());
    paused_.push_front(std::move(newest));
    is_shown_ = false;
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
    is_shown_ = false;
  }
  ended_.clear();
}

void Scheduler::RemoveCancelled() {
  const auto is_cancelled = [](const auto& text) { return text->job().is_cancelled(); };
  for (auto* texts : {&running_, &paused_}) {
    for (auto& text : *texts | std::views::filter(is_cancelled)) {
      ++totals_.cancelled;
      Keep(*text);
      is_shown_ = false;
    }
    std::erase_if(*texts, is_cancelled);
  }
  LetGoOfHeldPrompts();
  totals_.cancelled += inbox_.RemoveCancelled();
}

}  // namespace moestro
