// SPDX-License-Identifier: MIT
#include "serve/scheduler.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "text/draft_control.h"
#include "text/drafts.h"
#include "text/sampler.h"

namespace moestro {
namespace {

constexpr double kPublishEvery = 0.1;
constexpr double kSlotsEvery = 1.0;

TextStatus StatusOf(const RunningText& text) {
  return {.place = text.place(),
          .is_written = text.is_written(),
          .prompt_tokens = text.n_prompt(),
          .cached_tokens = text.cached(),
          .generated = text.generated(),
          .positions = text.sequence().position()};
}

// The held part of a prompt: all but the last token, whose logits are gone.
std::span<const Token> HeldPart(const Job& job) {
  return std::span(job.prompt()).first(job.prompt().size() - 1);
}

}  // namespace

Scheduler::Scheduler(Engine& engine, const Vocab& vocab, SchedulerOptions options, Clock clock)
    : engine_(engine),
      vocab_(vocab),
      options_(std::move(options)),
      clock_(std::move(clock)),
      inbox_(options_.queue, options_.parallel),
      prefixes_(engine, clock_,
                {.folder = options_.cache_folder,
                 .key = options_.cache_key,
                 .disk_bytes = options_.cache_disk}),
      saved_texts_(engine, options_.saved_texts_folder, options_.cache_key,
                   options_.most_saved_texts),
      place_texts_(options_.parallel),
      loop_(engine, *this,
            {.step_rows = engine.chunk(),
             .gap_seconds = options_.gap_seconds,
             .checkpoint_every = options_.checkpoint_every},
            clock_) {
  if (options_.embedder != nullptr) embeddings_.emplace(*options_.embedder, engine.chunk());
  Publish(true);
}

void Scheduler::Withdraw(Job& job) {
  // A stop that comes too late ends the next step at once, which is then computed again.
  if (inbox_.Cancel(job)) engine_.RequestStop();
}

void Scheduler::Stop() {
  inbox_.Stop();
  engine_.RequestStop();
}

Status Scheduler::Run() {
  while (true) {
    RemoveCancelled();
    const bool is_draining = inbox_.is_draining();  // jobs that come after this line are refused
    if (inbox_.is_stopped()) break;
    DoPlaceTask();
    if (EmbedSome()) {
      if (engine_.closed()) break;
      continue;
    }
    Admit();
    if (!loop_.running().empty()) {
      Publish(false);  // a step may take seconds
      // An interrupted step is computed again, without the job that has gone.
      [[maybe_unused]] const Status stepped = loop_.Step();
      if (engine_.closed()) break;
      Publish(false);
      continue;
    }
    Publish(true);
    if (is_draining) {
      if (inbox_.is_empty()) break;
      continue;
    }
    if (prefixes_.SaveOne(clock_() - options_.rest_seconds)) continue;
    if (engine_.WorkWhileIdle()) continue;
    inbox_.Wait(std::chrono::duration<double>(std::max(options_.rest_seconds / 4, 0.01)));
  }
  FailAll(GoingDown());
  if (engine_.closed()) return std::unexpected(*engine_.closed());
  while (prefixes_.SaveOne(clock_())) {
  }
  Publish(true);
  return {};
}

void Scheduler::Admit() {
  while (loop_.running().size() < options_.parallel) {
    if (!loop_.paused().empty()) {
      if (!ResumeOne()) return;
      continue;
    }
    const auto next = inbox_.FindNext([this](const Job& job) { return MayBegin(job); });
    if (!next) return;
    const size_t n_running = loop_.running().size();
    if (!next->job->is_cancelled() && !AdmitOne(*next)) return;
    std::optional<TextStatus> text;
    if (loop_.running().size() > n_running) text = StatusOf(*loop_.running().back());
    inbox_.Took(*next->job, text);
  }
}

bool Scheduler::AdmitOne(const JobInbox::Next& next) {
  const std::shared_ptr<Job>& job = next.job;
  const auto n_prompt = static_cast<uint32_t>(job->prompt().size());
  if (!loop_.Fits(n_prompt)) return false;
  auto grammar = GrammarFor(*job);
  if (!grammar) {
    job->Tell(grammar.error());
    ++totals_.failed;
    return true;
  }
  std::optional<Sequence> shared;
  if (next.is_further) shared = SharedPrompt(*job);
  const bool looks = job->options().uses_prefixes && !job->scores_prompt() && !shared;
  const uint32_t common = looks ? prefixes_.MostInCommon(job->prompt()) : 0;
  Sequence sequence = shared ? std::move(*shared) : BeginSequence(*job);
  const uint32_t recomputed = common - std::min(common, sequence.position());
  prefixes_.DropFor(n_prompt - sequence.position() + TextLoop::kReserve);
  totals_.cached_tokens += sequence.position();
  totals_.recomputed_tokens += recomputed;
  Start(job, *std::move(grammar), std::move(sequence), recomputed);
  return true;
}

// Begins the job's text, for which `sequence` has the first tokens of the prompt.
void Scheduler::Start(const std::shared_ptr<Job>& job, std::unique_ptr<TokenFilter> grammar,
                      Sequence sequence, uint32_t recomputed) {
  const JobOptions& options = job->options();
  if (grammar && !options.quiet.end.empty()) {
    grammar = std::make_unique<QuietFilter>(std::move(grammar), options.quiet, vocab_);
  }
  Sampler sampler = job->TakeSampler();
  if (grammar) sampler.SetGrammar(std::move(grammar));  // owns the grammar's process
  sampler.Observe(job->prompt());
  auto text = std::make_unique<RunningText>(
      *job, options.text, std::move(sequence),
      [sampler = std::move(sampler)](std::span<const float> logits,
                                     std::span<const Token> not_yet) mutable {
        return sampler.Pick(logits, not_yet);
      },
      &vocab_, clock_);
  text->set_recomputed(recomputed);
  if (options_.draft.is_on()) {
    text->DraftWith(MakeDrafter(options_.draft.kind, engine_, text->sequence()),
                    MakeDraftControl(options_.draft), engine_);
  }
  text->SayProgress(text->cached());
  jobs_.emplace(text.get(), job);
  loop_.Start(std::move(text));
}

// Opens a grammar when its text begins, so that no more grammars are open than texts run.
Result<std::unique_ptr<TokenFilter>> Scheduler::GrammarFor(const Job& job) const {
  const std::shared_ptr<const Grammar>& grammar = job.options().grammar;
  if (!grammar) return nullptr;
  if (!options_.open_grammar) {
    return Fail(Errc::kInvalidRequest, "grammars are not offered here");
  }
  return options_.open_grammar(*grammar);
}

// Scores need all logits of the prompt, and no logits are kept, so a scored prompt begins anew.
Sequence Scheduler::BeginSequence(const Job& job) {
  const bool begins_anew = !job.options().uses_prefixes || job.scores_prompt();
  return begins_anew ? engine_.NewSequence() : prefixes_.Begin(job.prompt());
}

bool Scheduler::ResumeOne() {
  const auto n = static_cast<uint32_t>(loop_.paused().front()->waiting().size());
  if (!loop_.Fits(n)) return false;
  prefixes_.DropFor(n + TextLoop::kReserve);
  loop_.ResumeOne();
  return true;
}

// Kept prefixes go. Within a step no file is written, and held prompts stay.
bool Scheduler::MakeRoom(uint32_t positions, uint32_t n_texts, Effort effort) {
  while (!prefixes_.HasRoom(positions, n_texts)) {
    const bool has_dropped = effort == Effort::kAll ? prefixes_.DropOneFor(positions)
                                                    : prefixes_.DropOldestFor(positions);
    if (!has_dropped) return false;
  }
  return true;
}

void Scheduler::PromptsInStep(std::span<const RunningText* const> texts) {
  std::vector<const Job*> jobs;
  for (const RunningText* text : texts) jobs.push_back(jobs_.at(text).get());
  inbox_.SetPromptsInStep(std::move(jobs));
}

void Scheduler::Ended(std::unique_ptr<RunningText> text) {
  ++(text->ending()->has_value() ? totals_.finished : totals_.failed);
  Keep(*text);
}

// Keeps the tokens of a text that has left the loop as a prefix, whatever ended the text.
void Scheduler::Keep(RunningText& text) {
  const std::shared_ptr<Job> job = std::move(jobs_.extract(&text).mapped());
  if (!job->options().uses_prefixes) return HoldForTwins(text, *job);
  if (text.sequence().position() == 0) return;
  const std::span<const Token> tokens = text.sequence().tokens();
  place_texts_[text.place()].assign(tokens.begin(), tokens.end());
  prefixes_.Keep(text.TakeSequence());
}

void Scheduler::RemoveCancelled() {
  const auto is_cancelled = [](const RunningText& text) { return text.reader().is_cancelled(); };
  for (auto& text : loop_.Remove(is_cancelled)) {
    ++totals_.cancelled;
    Keep(*text);
  }
  LetGoOfHeldPrompts();
  totals_.cancelled += inbox_.RemoveCancelled();
}

void Scheduler::FailAll(const ApiError& error) {
  for (auto& text : loop_.Remove([](const RunningText&) { return true; })) {
    jobs_.at(text.get())->Refuse(error);
    ++totals_.failed;
    Keep(*text);
  }
  totals_.failed += inbox_.FailAll(error);
  if (embeddings_) embeddings_->FailAll(error);
  LetGoOfHeldPrompts();
}

ServeTotals Scheduler::Totals() const {
  const TextLoopCounts& counts = loop_.counts();
  ServeTotals totals = totals_;
  totals.prompt_tokens = counts.prompt_tokens;
  totals.generated = counts.generated;
  totals.steps = counts.steps;
  totals.prompt_seconds = counts.prompt_seconds;
  totals.text_seconds = counts.text_seconds;
  totals.gap_ms = counts.gap_ms;
  if (!embeddings_) return totals;
  const EmbedCounts& embedded = embeddings_->counts();
  totals.finished += embedded.finished;
  totals.failed += embedded.failed;
  totals.cancelled += embedded.cancelled;
  totals.prompt_tokens = engine_.stats().prefill.tokens;
  totals.prompt_seconds = engine_.stats().prefill.seconds;
  return totals;
}

void Scheduler::Publish(bool now) {
  const double time = clock_();
  const bool is_shown = shown_changes_ == loop_.changes();
  if (!now && is_shown && time - published_ < kPublishEvery) return;
  published_ = time;
  shown_changes_ = loop_.changes();
  SchedulerStatus status{.parallel = options_.parallel,
                         .waiting = static_cast<uint32_t>(loop_.paused().size()),
                         .kept_prefixes = prefixes_.texts(),
                         .kept_tokens = prefixes_.tokens(),
                         .saved_prefixes = static_cast<uint32_t>(prefixes_.files().size()),
                         .saved_bytes = prefixes_.files().bytes(),
                         .kv_room = engine_.kv_room(),
                         .totals = Totals(),
                         .engine = engine_.stats()};
  for (const auto& text : loop_.running()) status.texts.push_back(StatusOf(*text));
  const bool with_slots = time - slots_published_ >= kSlotsEvery;
  if (with_slots) {
    slots_published_ = time;
    status.slots = engine_.slot_contents();
  }
  inbox_.Publish(std::move(status), with_slots);
}

void Scheduler::DoPlaceTask() {
  const std::shared_ptr<SaveTask> task = inbox_.TakeTask();
  if (!task || task->is_cancelled()) return;
  const double began = clock_();
  ApiResult<SaveFigures> done = Do(*task);
  if (done) done->seconds = clock_() - began;
  Publish(true);  // before Tell(), so that the client finds the change in reports
  task->Tell(std::move(done));
}

// An engine for embeddings runs no text, so nobody waits for a chunk of them but other embeddings.
// False: there is none to compute.
bool Scheduler::EmbedSome() {
  if (!embeddings_) return false;
  while (!embeddings_->is_full()) {
    std::shared_ptr<EmbedTask> task = inbox_.TakeEmbedTask();
    if (!task) break;
    embeddings_->Add(std::move(task));
  }
  if (embeddings_->empty()) return false;
  embeddings_->ComputeSome();
  Publish(false);
  return true;
}

ApiResult<SaveFigures> Scheduler::Do(const SaveTask& task) {
  if (task.place() >= options_.parallel) {
    return BadRequest("id_slot", Format("there is no place {}; this server has {}, from 0 on",
                                        task.place(), options_.parallel));
  }
  if (loop_.IsTaken(task.place())) {
    return std::unexpected(ApiError{
        .status = 409,
        .type = "invalid_request_error",
        .message = Format("a text is being computed at place {}; ask again when it has ended",
                          task.place()),
        .code = "slot_busy"});
  }
  switch (task.action()) {
    case SaveAction::kSave:
      return SaveText(task);
    case SaveAction::kRestore:
      return RestoreText(task);
    case SaveAction::kErase:
      break;
  }
  const std::vector<Token> tokens = std::exchange(place_texts_[task.place()], {});
  return SaveFigures{.tokens = prefixes_.Drop(tokens) ? tokens.size() : 0};
}

ApiResult<SaveFigures> Scheduler::SaveText(const SaveTask& task) {
  const std::optional<Sequence> text = prefixes_.ForkWhole(place_texts_[task.place()]);
  if (!text) {
    return std::unexpected(ApiError{
        .status = 404,
        .type = "invalid_request_error",
        .message = Format("nothing is kept of place {}: no text has ended there, or it had to make "
                          "room for others; send its prompt again first",
                          task.place()),
        .code = "slot_empty"});
  }
  TRY(const uint64_t bytes, saved_texts_.Save(*text, task.file()));
  return SaveFigures{.tokens = text->position(), .bytes = bytes};
}

ApiResult<SaveFigures> Scheduler::RestoreText(const SaveTask& task) {
  TRY(const uint32_t length, saved_texts_.Length(task.file()));
  // Checked before kept prefixes are dropped, which would be for nothing.
  if (!loop_.Fits(length)) {
    return std::unexpected(ApiError{
        .status = 503,
        .type = "unavailable_error",
        .message = Format("the texts that are being computed leave no room for {} tokens; ask "
                          "again when they have ended",
                          length)});
  }
  prefixes_.DropFor(length + TextLoop::kSlack);
  TRY(Sequence restored, saved_texts_.Restore(task.file()));
  const std::span<const Token> tokens = restored.tokens();
  place_texts_[task.place()].assign(tokens.begin(), tokens.end());
  prefixes_.Keep(std::move(restored));
  return SaveFigures{.tokens = length, .bytes = saved_texts_.BytesOf(task.file())};
}

// True unless the job's prompt is being computed for another text.
bool Scheduler::MayBegin(const Job& job) const {
  const RunningText* twin = TwinOf(job);
  return twin == nullptr || twin->sequence().position() + 1 >= twin->n_prompt();
}

// The running text of the same prompt that has computed most of it; nullptr if none runs, or if the
// job scores the prompt and needs all of its logits.
const RunningText* Scheduler::TwinOf(const Job& job) const {
  if (job.scores_prompt()) return nullptr;
  const RunningText* best = nullptr;
  for (const auto& text : loop_.running()) {
    if (best != nullptr && best->sequence().position() >= text->sequence().position()) continue;
    if (text->options().prompt == job.prompt()) best = text.get();
  }
  return best;
}

// A sequence of the prompt as far as a twin has computed it.
std::optional<Sequence> Scheduler::SharedPrompt(const Job& job) const {
  const std::span<const Token> part = HeldPart(job);
  if (const RunningText* twin = TwinOf(job); twin != nullptr) {
    Sequence sequence = twin->sequence().Fork();
    sequence.GoBack(std::min(static_cast<uint32_t>(part.size()), sequence.position()));
    return sequence;
  }
  if (job.scores_prompt()) return std::nullopt;
  return prefixes_.ForkHeld(part);
}

// Holds the prompt of a text that has ended without being kept as a prefix, as long as a twin
// waits.
void Scheduler::HoldForTwins(RunningText& text, const Job& job) {
  if (text.sequence().position() + 1 < text.n_prompt() || text.n_prompt() == 1) return;
  const bool is_wanted =
      inbox_.HasFurther([&](const Job& other) { return other.prompt() == job.prompt(); });
  if (!is_wanted || text.sequence().Reach(text.n_prompt() - 1) != text.n_prompt() - 1) return;
  Sequence held = text.TakeSequence();
  held.CutBack(text.n_prompt() - 1);
  prefixes_.Hold(std::move(held));
}

void Scheduler::LetGoOfHeldPrompts() {
  prefixes_.LetGo([this](std::span<const Token> held) {
    return inbox_.HasFurther(
        [&](const Job& job) { return std::ranges::equal(held, HeldPart(job)); });
  });
}

}  // namespace moestro
