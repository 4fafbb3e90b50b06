// SPDX-License-Identifier: MIT
#include "text/text_loop.h"

#include <algorithm>
#include <utility>

#include "base/terminal.h"

namespace moestro {
namespace {

uint32_t WholeBlocks(uint32_t positions) {
  return KvBlocks::BlocksFor(positions) * KvBlocks::kPositions;
}

// Appends the rows of a text's draft behind the row of the text's newest token. A state cannot be
// cut back, so it is kept after each row that may be the last right one, unless that divides the
// step. Writing each state to another place costs a few milliseconds of memory's time; the right
// tokens are then not computed again after wrong ones.
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

// Puts the next rows[i] tokens of each text, and drafts behind them, into a batch.
StepRows RowsOf(const EngineFacts& facts, const std::deque<std::unique_ptr<RunningText>>& texts,
                std::span<const uint32_t> rows, const TextLoopOptions& options) {
  StepRows step;
  Batch& batch = step.batch;
  for (size_t i = 0; i < rows.size(); ++i) {
    RunningText& text = *texts[i];
    const std::span<const Token> waiting = text.waiting();
    const bool decodes = text.is_written() || (options.decodes_single && waiting.size() == 1);
    for (uint32_t n = 0; n < rows[i]; ++n) {
      const bool is_last = n + 1 == waiting.size();
      const uint32_t position = text.sequence().position() + n;
      batch.rows.push_back({.sequence = text.sequence().id(),
                            .position = position,
                            .token = waiting[n],
                            .kind = decodes ? RowKind::kDecode : RowKind::kPrompt,
                            .wants_logits = is_last || text.wants_logits_at(position),
                            .is_kept = facts.has_states &&
                                       text.IsKeptAfter(position + 1, options.checkpoint_every)});
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

TextLoop::TextLoop(Engine& engine, TextLoopOwner& owner, const TextLoopOptions& options,
                   const Clock& clock)
    : engine_(engine),
      owner_(owner),
      options_(options),
      clock_(clock),
      planner_({.chunk = options.step_rows, .gap_seconds = options.gap_seconds}) {}

void TextLoop::Start(std::unique_ptr<RunningText> text) {
  uint32_t place = 0;
  while (IsTaken(place)) ++place;
  text->set_place(place);
  running_.push_back(std::move(text));
  ++changes_;
}

bool TextLoop::IsTaken(uint32_t place) const {
  return std::ranges::any_of(running_, [&](const auto& text) { return text->place() == place; });
}

// Positions of the cache that running texts have or that their prompts will take; shared positions
// count for each text.
uint32_t TextLoop::HeldPositions() const {
  uint32_t held = 0;
  for (const auto& text : running_) {
    held += WholeBlocks(std::max(text->sequence().position(), text->n_prompt())) + kSlack;
  }
  return held;
}

bool TextLoop::Fits(uint32_t positions) const {
  return running_.empty() ||
         HeldPositions() + WholeBlocks(positions) + kReserve <= engine_.kv_room().all;
}

void TextLoop::ResumeOne() {
  Start(std::move(paused_.front()));
  paused_.pop_front();
}

std::vector<std::unique_ptr<RunningText>> TextLoop::Remove(
    const std::function<bool(const RunningText&)>& is_such) {
  std::vector<std::unique_ptr<RunningText>> removed;
  for (auto* texts : {&running_, &paused_}) {
    for (auto& text : *texts) {
      if (is_such(*text)) removed.push_back(std::move(text));
    }
    std::erase(*texts, nullptr);
  }
  changes_ += removed.size();
  return removed;
}

Status TextLoop::Step() {
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
  bool has_prompts = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    has_prompts = has_prompts || (rows[i] > 0 && texts[i].is_prompt);
  }
  Status status = has_prompts ? StepWithPrompts(rows) : StepOfTexts(rows);
  RemoveEnded();
  return status;
}

// True: the rows have positions. False: a text gave up.
bool TextLoop::MakeRoomFor(std::span<const uint32_t> rows) {
  uint32_t needed = 0;
  uint32_t n_texts = 0;
  for (const uint32_t n : rows) {
    needed += n > 0 ? n + kSlack : 0;
    n_texts += n > 0 ? 1 : 0;
  }
  if (owner_.MakeRoom(needed, n_texts, TextLoopOwner::Effort::kAll)) return true;
  if (running_.size() == 1) return true;  // a single text fits, since it may take everything
  std::unique_ptr<RunningText> newest = std::move(running_.back());
  running_.pop_back();
  newest->GiveUp(engine_.NewSequence());
  paused_.push_front(std::move(newest));
  ++changes_;
  return false;
}

// A step with rows of prompts.
Status TextLoop::StepWithPrompts(std::span<const uint32_t> rows) {
  uint32_t prompt_rows = 0;
  bool others_wait = false;
  std::vector<const RunningText*> prompts;
  for (size_t i = 0; i < rows.size(); ++i) {
    const RunningText& text = *running_[i];
    others_wait = others_wait || (rows[i] == 0 && text.is_written());
    if (text.is_written() || rows[i] == 0) continue;
    prompt_rows += rows[i];
    prompts.push_back(&text);
  }
  owner_.PromptsInStep(prompts);
  const double began = clock_();
  double aside = 0.0;
  const Status status = ComputePrompts(rows, aside);
  const double seconds = clock_() - began - aside;
  owner_.PromptsInStep({});
  if (!status) {
    if (status.error().code == Errc::kInterrupted) return status;
    FailedStep(rows, status.error());
    return {};
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    RunningText& text = *running_[i];
    const uint32_t position = text.sequence().position();
    const bool is_under_way = std::ranges::contains(prompts, &text) && position < text.n_prompt();
    if (is_under_way) text.SayProgress(position);
  }
  planner_.StepDone(prompt_rows, seconds, others_wait);
  if (aside > 0.0) planner_.TextsHad(aside);
  ++counts_.steps;
  counts_.prompt_tokens += prompt_rows;
  counts_.prompt_seconds += seconds;
  return {};
}

// A step of texts that are being written, with a draft of one of them.
Status TextLoop::StepOfTexts(std::span<const uint32_t> rows) {
  const Result<RunningText*> drafted = DraftFor(rows);
  if (!drafted) {
    if (drafted.error().code == Errc::kInterrupted) return std::unexpected(drafted.error());
    return {};  // the next step is planned anew
  }
  const double began = clock_();
  const Status status = Compute(rows);
  const double seconds = clock_() - began;
  if (status) {
    planner_.StepDone(0, seconds, false);
    ++counts_.steps;
    counts_.text_seconds += seconds;
    return NoteTextsStep(rows, *drafted, seconds);
  }
  if (*drafted != nullptr) (*drafted)->DiscardDraft();
  if (status.error().code == Errc::kInterrupted) return status;
  FailedStep(rows, status.error());
  return {};
}

// Makes a draft for a text of a step of texts; null: no text drafts. One text drafts at a time, in
// turn, so that the step's length shows the cost of that draft. Kept prefixes make room for a
// draft, running texts do not.
Result<RunningText*> TextLoop::DraftFor(std::span<const uint32_t> rows) {
  std::vector<RunningText*> texts;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] > 0) texts.push_back(running_[i].get());
  }
  RunningText* const next = NextToDraft(texts, engine_.n_ctx(), drafted_last_);
  if (next == nullptr) return next;
  const auto n_texts = static_cast<uint32_t>(texts.size());
  const uint32_t most = std::min(next->wanted_draft(engine_.n_ctx()), engine_.chunk() - n_texts);
  const uint32_t positions = n_texts * (1 + kSlack) + most;
  if (!owner_.MakeRoom(positions, n_texts, TextLoopOwner::Effort::kLittle)) return nullptr;
  if (most == 0) return nullptr;
  TRY_STATUS(next->Draft(most));
  drafted_last_ = next->place();
  return next->draft().empty() ? nullptr : next;
}

// Notes the step's length for the texts that draft. kInterrupted: a drafted text lacks tokens.
Status TextLoop::NoteTextsStep(std::span<const uint32_t> rows, RunningText* drafted,
                               double seconds) {
  const auto n_texts =
      static_cast<uint32_t>(std::ranges::count_if(rows, [](uint32_t n) { return n > 0; }));
  if (drafted != nullptr) {
    Status back = drafted->EndDraft(seconds, n_texts);
    if (!back && back.error().code == Errc::kInterrupted) return back;
    return {};
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] > 0) running_[i]->NotePlainStep(seconds, n_texts);
  }
  return {};
}

// Gives the logits of a row to its text.
void TextLoop::Take(RunningText& text, const BatchRow& row, std::span<const float> logits) {
  if (text.wants_logits_at(row.position)) return text.Score(row.position, logits);
  if (!text.GoesOnFrom(row.position, row.token)) return;  // a wrong draft
  ++counts_.generated;
  if (text.generated() == 0) ++changes_;  // the prompt is computed
  if (text.generated() > 0) counts_.gap_ms.Add((clock_() - text.told()) * 1e3);
  text.Take(logits, engine_.n_ctx());
}

// Computes the rows; texts whose last waiting token is among them get the logits.
Status TextLoop::Compute(std::span<const uint32_t> rows) {
  const StepRows step = RowsOf(engine_.facts(), running_, rows, options_);
  return engine_.Step(step.batch, [&](size_t row, std::span<const float> logits) {
    Take(*step.takers[row], step.batch.rows[row], logits);
  });
}

// Computes prompts' rows piece by piece. Texts get their tokens between two pieces when it is time;
// `aside`: seconds that the texts took. kInterrupted: the reader of a prompt has gone.
Status TextLoop::ComputePrompts(std::span<const uint32_t> rows, double& aside) {
  const StepRows step = RowsOf(engine_.facts(), running_, rows, options_);
  TRY(const std::unique_ptr<StepRun> run,
      engine_.Begin(step.batch, [&](size_t row, std::span<const float> logits) {
        Take(*step.takers[row], step.batch.rows[row], logits);
      }));
  double piece = 0.0;  // seconds of the longest one
  while (true) {
    const double begins = clock_();
    if (IsTimeForTexts(rows, piece)) {
      TRY_STATUS(StepAside(rows));
      aside += clock_() - begins;
    }
    if (owner_.is_stopped() || IsAnyCancelled(rows)) {
      return Fail(Errc::kInterrupted, "a client has gone");
    }
    const double computes = clock_();
    TRY(const bool has_ended, run->Advance());
    if (has_ended) return {};
    piece = std::max(piece, clock_() - computes);
  }
}

// Whether texts that wait for a token would wait too long until the next piece's end.
bool TextLoop::IsTimeForTexts(std::span<const uint32_t> rows, double piece) const {
  const double now = clock_();
  double waited = 0.0;
  for (size_t i = 0; i < running_.size(); ++i) {
    if (WaitsForToken(i, rows)) waited = std::max(waited, now - running_[i]->told());
  }
  return waited > 0.0 && planner_.is_time_for_texts(waited, piece);
}

bool TextLoop::IsAnyCancelled(std::span<const uint32_t> rows) const {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] > 0 && running_[i]->reader().is_cancelled()) return true;
  }
  return false;
}

// True if the text is being written, was not cancelled, has no row in the prompts' step and did not
// end during that step.
bool TextLoop::WaitsForToken(size_t text, std::span<const uint32_t> rows) const {
  const RunningText& its = *running_[text];
  return rows[text] == 0 && its.is_written() && !its.reader().is_cancelled() && !its.ending();
}

// Computes a token for each waiting text within a prompts' step with these rows; no text leaves
// before that step ends.
Status TextLoop::StepAside(std::span<const uint32_t> rows) {
  std::vector<uint32_t> texts(rows.size(), 0);
  uint32_t n = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (WaitsForToken(i, rows)) texts[i] = 1;
    n += texts[i];
  }
  if (!owner_.MakeRoom(n * (1 + kSlack), n, TextLoopOwner::Effort::kLittle)) return {};
  const double began = clock_();
  const Status status = Compute(texts);
  const double seconds = clock_() - began;
  if (status) {
    planner_.StepDone(0, seconds, false);
    ++counts_.steps;
    counts_.text_seconds += seconds;
  } else if (status.error().code == Errc::kDevice || engine_.closed()) {
    return status;
  } else if (status.error().code != Errc::kInterrupted) {
    FailedStep(texts, status.error());
  }
  owner_.TextsStepped();
  return {};
}

// Tries each text alone after a failed step; a text that fails again ends.
void TextLoop::FailedStep(std::span<const uint32_t> rows, const Error& error) {
  if (options_.tries_alone) LogWarning("a step failed: {}", error.message);
  std::vector<uint32_t> alone(rows.size(), 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0 || running_[i]->ending()) continue;
    Status status = std::unexpected(error);
    if (options_.tries_alone) {
      alone[i] = rows[i];
      status = Compute(alone);
      alone[i] = 0;
    }
    if (status || status.error().code == Errc::kInterrupted) continue;
    running_[i]->Fail(status.error());
  }
}

void TextLoop::RemoveEnded() {
  std::vector<std::unique_ptr<RunningText>> ended;
  for (auto& text : running_) {
    if (text->ending()) ended.push_back(std::move(text));
  }
  std::erase(running_, nullptr);
  changes_ += ended.size();
  for (auto& text : ended) owner_.Ended(std::move(text));
}

LoneText::LoneText(Engine& engine, std::unique_ptr<RunningText> text, Clock clock)
    : clock_(std::move(clock)),
      text_(*text),
      loop_(engine, *this,
            {.step_rows = engine.n_ctx(), .decodes_single = true, .tries_alone = false}, clock_) {
  loop_.Start(std::move(text));
}

void LoneText::Write(const std::function<bool()>& is_stopped) {
  while (!has_ended()) {
    const Status stepped = Step();
    if (stepped || has_ended() || !is_stopped()) continue;
    ended_ = std::move(loop_.Remove([](const RunningText&) { return true; }).front());
    ended_->Interrupt();
  }
}

}  // namespace moestro
