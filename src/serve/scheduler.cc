// SPDX-License-Identifier: MIT
#include "serve/scheduler.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"

namespace moestro {
namespace {

// Positions that a text should find free when it begins, so that it need not give up soon.
constexpr uint32_t kReserve = 4 * KvBlocks::kPositions;
// A prefix this short is computed as quickly as it is found on disk.
constexpr uint32_t kWorthReading = 32;
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

uint32_t WholeBlocks(uint32_t positions) {
  return KvBlocks::BlocksFor(positions) * KvBlocks::kPositions;
}

}  // namespace

Scheduler::Scheduler(Engine& engine, const Vocab& vocab, SchedulerOptions options, Clock clock)
    : engine_(engine),
      vocab_(vocab),
      options_(std::move(options)),
      clock_(std::move(clock)),
      planner_({.chunk = engine.chunk(), .gap_seconds = options_.gap_seconds}),
      files_(engine, options_.cache_folder, options_.cache_key, options_.cache_disk),
      slot_files_(engine, options_.slot_folder, options_.cache_key, options_.slot_files),
      place_texts_(options_.parallel) {
  Publish(true);
}

ApiStatus Scheduler::CheckRoomToWait() {
  if (is_draining_) return std::unexpected(GoingDown());
  const size_t waiting = waiting_.size() + slot_tasks_.size();
  if (waiting < options_.queue) return {};
  ++refused_;
  return std::unexpected(ApiError{
      .status = 429,
      .type = "rate_limit_error",
      .message = Format("{} requests are waiting already; ask again later, or start the server "
                        "with a larger --queue",
                        waiting),
      .code = "queue_full"});
}

ApiStatus Scheduler::Submit(std::span<const std::shared_ptr<Job>> jobs) {
  {
    const std::lock_guard lock(mutex_);
    TRY_STATUS(CheckRoomToWait());
    if (jobs.empty()) return {};
    waiting_.push_back(jobs.front());
    further_.insert(further_.end(), jobs.begin() + 1, jobs.end());
  }
  work_.notify_one();
  return {};
}

ApiStatus Scheduler::Submit(std::shared_ptr<SlotTask> task) {
  {
    const std::lock_guard lock(mutex_);
    TRY_STATUS(CheckRoomToWait());
    slot_tasks_.push_back(std::move(task));
  }
  work_.notify_one();
  return {};
}

bool Scheduler::is_draining() const {
  const std::lock_guard lock(mutex_);
  return is_draining_;
}

void Scheduler::Withdraw(Job& job) {
  job.Cancel();
  bool stops = false;
  {
    const std::lock_guard lock(mutex_);
    stops = std::ranges::contains(prompts_in_step_, &job);
  }
  // One that comes too late ends the next step at once, which is then computed again.
  if (stops) engine_.RequestStop();
  work_.notify_one();
}

void Scheduler::Drain() {
  {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
  }
  work_.notify_one();
}

void Scheduler::Stop() {
  {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
    is_stopped_ = true;
  }
  engine_.RequestStop();
  work_.notify_one();
}

SchedulerStatus Scheduler::status() const {
  const std::lock_guard lock(mutex_);
  SchedulerStatus status = status_;
  status.waiting += static_cast<uint32_t>(waiting_.size() + further_.size());
  status.totals.refused = refused_;
  return status;
}

Status Scheduler::Run() {
  while (true) {
    RemoveCancelled();
    bool is_draining = false;
    bool is_stopped = false;
    {
      const std::lock_guard lock(mutex_);
      is_draining = is_draining_;
      is_stopped = is_stopped_;
    }
    if (is_stopped) break;
    DoSlotTask();
    Admit();
    if (!running_.empty()) {
      Publish(false);  // a step may take seconds
      Step();
      if (engine_.closed()) break;
      Publish(false);
      continue;
    }
    Publish(true);
    if (is_draining) {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty() && further_.empty() && slot_tasks_.empty()) break;
      continue;
    }
    if (!SaveOne(clock_() - options_.rest_seconds)) WaitForWork();
  }
  FailAll(GoingDown());
  if (engine_.closed()) return std::unexpected(*engine_.closed());
  while (SaveOne(clock_())) {
  }
  Publish(true);
  return {};
}

void Scheduler::WaitForWork() {
  std::unique_lock lock(mutex_);
  const std::chrono::duration<double> rest(std::max(options_.rest_seconds / 4, 0.01));
  work_.wait_for(lock, rest, [this] {
    return !waiting_.empty() || !further_.empty() || !slot_tasks_.empty() || is_draining_;
  });
}

void Scheduler::Admit() {
  while (running_.size() < options_.parallel) {
    if (!paused_.empty()) {
      if (!ResumeOne()) return;
      continue;
    }
    const std::optional<NextJob> next = Next();
    if (!next) return;
    const size_t n_running = running_.size();
    if (!next->job->is_cancelled() && !AdmitOne(*next)) return;
    const std::lock_guard lock(mutex_);
    next->queue->erase(next->queue->begin() + next->at);  // others only add behind it
    if (running_.size() > n_running) status_.texts.push_back(StatusOf(*running_.back()));
  }
}

// Positions of the cache that running texts have or that their prompts will take, those that they
// share counted for each.
uint32_t Scheduler::HeldPositions() const {
  uint32_t held = 0;
  for (const auto& text : running_) {
    held += WholeBlocks(std::max(text->sequence().position(), text->n_prompt())) + kSlack;
  }
  return held;
}

// Another text of so many positions may run beside those that do; alone any may.
bool Scheduler::Fits(uint32_t positions) const {
  return running_.empty() ||
         HeldPositions() + WholeBlocks(positions) + kReserve <= engine_.kv_room().all;
}

// Kept prefixes go until so many positions are free, or none is left.
void Scheduler::DropFor(uint32_t positions) {
  while (engine_.kv_room().free < positions && DropOne()) {
  }
}

bool Scheduler::AdmitOne(const NextJob& next) {
  const std::shared_ptr<Job>& job = next.job;
  const auto n_prompt = static_cast<uint32_t>(job->options().prompt.size());
  if (!Fits(n_prompt)) return false;
  auto grammar = GrammarFor(*job);
  if (!grammar) {
    job->Tell(ToApiError(grammar.error()));
    ++totals_.failed;
    return true;
  }
  std::optional<Sequence> shared;
  if (next.queue == &further_) shared = SharedPrompt(*job);
  Sequence sequence = shared ? std::move(*shared) : BeginSequence(*job);
  DropFor(n_prompt - sequence.position() + kReserve);
  totals_.cached_tokens += sequence.position();
  Start(
      std::make_unique<RunningText>(job, *std::move(grammar), std::move(sequence), vocab_, clock_));
  running_.back()->SayProgress(running_.back()->cached());
  return true;
}

// Opened now and not before, so that there are as many as texts run.
Result<std::unique_ptr<TokenFilter>> Scheduler::GrammarFor(const Job& job) const {
  const std::shared_ptr<const Grammar>& grammar = job.options().grammar;
  if (!grammar) return nullptr;
  if (!options_.open_grammar) {
    return Fail(Errc::kInvalidRequest, "grammars are not offered here");
  }
  return options_.open_grammar(*grammar);
}

// One that has the beginning of the prompt, as much as is kept. The last token is computed in any
// case: its logits are gone.
Sequence Scheduler::BeginSequence(const Job& job) {
  const std::vector<Token>& prompt = job.options().prompt;
  // What is scored needs all logits of the prompt, which are kept nowhere.
  const bool begins_anew = !job.options().uses_prefixes || job.options().scores_prompt();
  if (begins_anew) return engine_.NewSequence();
  const auto most = static_cast<uint32_t>(prompt.size() - 1);
  auto match = kept_.Find(prompt, most);
  const auto saved = files_.Find(prompt, most);
  if (saved && saved->common >= (match ? match->common : 0) + kWorthReading) {
    DropFor(files_.length(*saved) + kSlack);
    Result<Sequence> restored = files_.Restore(*saved);
    if (restored) {
      kept_.Keep(std::move(*restored), true, clock_());
    } else {
      LogWarning("a prefix on disk is not used: {}", restored.error().message);
    }
    match = kept_.Find(prompt, most);
  }
  return match ? kept_.Begin(*match, clock_()) : engine_.NewSequence();
}

bool Scheduler::ResumeOne() {
  const auto n = static_cast<uint32_t>(paused_.front()->waiting().size());
  if (!Fits(n)) return false;
  DropFor(n + kReserve);
  Start(std::move(paused_.front()));
  paused_.pop_front();
  return true;
}

// What was computed stays, whatever ended the text.
void Scheduler::Keep(RunningText& text) {
  if (!text.job().options().uses_prefixes) return HoldForTwins(text);
  if (text.sequence().position() == 0) return;
  const std::span<const Token> tokens = text.sequence().tokens();
  place_texts_[text.place()].assign(tokens.begin(), tokens.end());
  kept_.Keep(text.TakeSequence(), false, clock_());
}

// True: one prefix that has rested since `before` has been dealt with.
bool Scheduler::SaveOne(double before) {
  if (!files_.is_on()) return false;
  KeptPrefixes::Kept* unsaved = kept_.FindUnsaved(before);
  if (unsaved == nullptr) return false;
  Save(*unsaved);
  return true;
}

void Scheduler::Save(KeptPrefixes::Kept& kept) {
  kept.is_saved = true;  // or never will be: a full disk is not asked again and again
  if (kept.sequence.position() < kWorthReading) return;
  const Status saved = files_.Save(kept.sequence);
  // A full disk is said once, not for each text.
  if (!saved && !has_failed_to_save_) {
    LogWarning("prefixes are not kept on disk for now: {}", saved.error().message);
  }
  has_failed_to_save_ = !saved;
}

void Scheduler::FailAll(const ApiError& error) {
  for (auto* texts : {&running_, &paused_}) {
    for (auto& text : *texts) {
      text->job().Tell(error);
      ++totals_.failed;
      Keep(*text);
    }
    texts->clear();
  }
  held_prompts_.clear();
  const std::lock_guard lock(mutex_);
  for (auto* queue : {&waiting_, &further_}) {
    for (const auto& job : *queue) job->Tell(error);
    totals_.failed += queue->size();
    queue->clear();
  }
  for (const auto& task : slot_tasks_) task->Tell(std::unexpected(error));
  slot_tasks_.clear();
}

void Scheduler::Publish(bool now) {
  const double time = clock_();
  if (!now && is_shown_ && time - published_ < kPublishEvery) return;
  published_ = time;
  is_shown_ = true;
  SchedulerStatus status{.parallel = options_.parallel,
                         .waiting = static_cast<uint32_t>(paused_.size()),
                         .kept_prefixes = static_cast<uint32_t>(kept_.all().size()),
                         .saved_prefixes = static_cast<uint32_t>(files_.size()),
                         .saved_bytes = files_.bytes(),
                         .kv_room = engine_.kv_room(),
                         .totals = totals_,
                         .engine = engine_.stats()};
  for (const auto& text : running_) status.texts.push_back(StatusOf(*text));
  for (const KeptPrefixes::Kept& kept : kept_.all()) status.kept_tokens += kept.sequence.position();
  const bool with_slots = time - slots_published_ >= kSlotsEvery;
  if (with_slots) {
    slots_published_ = time;
    status.slots = engine_.slot_contents();
  }
  const std::lock_guard lock(mutex_);
  if (!with_slots) status.slots = std::move(status_.slots);
  status_ = std::move(status);
}

}  // namespace moestro
