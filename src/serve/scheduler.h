// SPDX-License-Identifier: MIT
// The engine thread's work in a server: takes jobs, computes rows of several texts in each step
// (serve/step_planner.h says which), keeps what was computed as prefixes of later prompts.
//
// A text is the same alone or beside others, from a cold or a warm prefix: a row's result depends
// on its own sequence only.
//
// A job that does not fit beside the others waits. When texts grow until positions run out, kept
// prefixes go, then the newest text gives up its positions and is computed again later.
//
// Thread rule: as each method says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/api_error.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "grammar/grammar_state.h"
#include "grammar/token_filter.h"
#include "memory/kv_blocks.h"
#include "model/vocab.h"
#include "serve/job.h"
#include "serve/job_inbox.h"
#include "serve/place_task.h"
#include "serve/prefix_cache.h"
#include "serve/running_text.h"
#include "serve/saved_texts.h"
#include "serve/scheduler_status.h"
#include "serve/step_planner.h"

namespace moestro {

// For a grammar that has been checked. Engine thread; at once.
using OpenGrammar = std::function<Result<std::unique_ptr<TokenFilter>>(const Grammar& grammar)>;

struct SchedulerOptions {
  uint32_t parallel = 4;          // texts that are computed beside each other
  uint32_t queue = 64;            // jobs that wait
  double gap_seconds = 1.0;       // see StepPlanner
  double rest_seconds = 1.0;      // a prefix is written to disk when it was not used for so long
  std::string cache_folder = {};  // for prefixes; empty: none on disk
  std::string cache_key = {};     // see PrefixFiles
  uint64_t cache_disk = 0;        // bytes
  std::string saved_texts_folder = {};  // for texts that clients save; empty: none
  uint32_t most_saved_texts = 256;      // of them
  OpenGrammar open_grammar = {};        // empty: no job has one. At most `parallel` are open
};

class Scheduler {
 public:
  // Engine thread. Engine and vocabulary must outlive this. REQUIRES: parallel <= engine.chunk().
  Scheduler(Engine& engine, const Vocab& vocab, SchedulerOptions options,
            Clock clock = SteadySeconds);

  // Any thread. Jobs of one prompt compute it once. 429: the queue is full; 503: the server is
  // going down. Of a request's jobs the first takes a place in the queue; its others begin when
  // no first job waits, so that a request of many fits a short queue and holds up no other request.
  ApiStatus Submit(std::span<const std::shared_ptr<Job>> jobs) { return inbox_.Put(jobs); }
  ApiStatus Submit(const std::shared_ptr<Job>& job) { return Submit(std::span(&job, 1)); }
  // Any thread. Done between two steps, one after another. Errors: the same; the task is told the
  // others: 400, there is no such place or the file cannot be used; 404, there is no such file or
  // nothing to save; 409, a text is being computed there; 503, there is no room for it now.
  ApiStatus Submit(std::shared_ptr<PlaceTask> task) { return inbox_.Put(std::move(task)); }
  bool has_saved_texts() const { return !options_.saved_texts_folder.empty(); }
  // Any thread. The client of the job has gone: a prompt of it that is being computed is stopped
  // within a layer's time.
  void Withdraw(Job& job);
  // Any thread. New jobs are refused from now on; Run() returns when the others have ended.
  void Drain() { inbox_.Drain(); }
  bool is_draining() const { return inbox_.is_draining(); }
  // Any thread. Those that are left fail; Run() returns.
  void Stop();
  // Any thread, at once. Which texts wait and run, as it is now: each job is among them from
  // Submit() on. Their figures are as of the last step or the last tenth of a second.
  SchedulerStatus status() const { return inbox_.status(); }

  // Engine thread. Works until Drain() or Stop(), then saves what rests. Fails with
  // Engine::closed() once that is; then nothing more is saved.
  Status Run();

 private:
  void Admit();
  const RunningText* TwinOf(const Job& job) const;
  std::optional<Sequence> SharedPrompt(const Job& job) const;
  void HoldForTwins(RunningText& text);
  void LetGoOfHeldPrompts();
  bool MayBegin(const Job& job) const;
  bool AdmitOne(const JobInbox::Next& next);
  Result<std::unique_ptr<TokenFilter>> GrammarFor(const Job& job) const;
  void Start(std::unique_ptr<RunningText> text);
  bool IsTaken(uint32_t place) const;
  bool ResumeOne();
  Sequence BeginSequence(const Job& job);
  uint32_t HeldPositions() const;
  bool Fits(uint32_t positions) const;
  void Step();
  bool MakeRoomFor(std::span<const uint32_t> rows);
  Status Compute(std::span<const uint32_t> rows, const Interlude& interlude = {});
  Status ComputePrompts(std::span<const uint32_t> rows, double& aside);
  Status StepTexts(std::span<const uint32_t> rows);
  bool WaitsForToken(size_t text, std::span<const uint32_t> rows) const;
  void FailedStep(std::span<const uint32_t> rows, const Error& error);
  void RemoveEnded();
  void RemoveCancelled();
  void Keep(RunningText& text);
  void DoPlaceTask();
  ApiResult<PlaceFigures> Do(const PlaceTask& task);
  ApiResult<PlaceFigures> SaveText(const PlaceTask& task);
  ApiResult<PlaceFigures> RestoreText(const PlaceTask& task);
  void FailAll(const ApiError& error);
  void Publish(bool now);

  Engine& engine_;
  const Vocab& vocab_;
  const SchedulerOptions options_;
  const Clock clock_;
  JobInbox inbox_;
  StepPlanner planner_;
  PrefixCache prefixes_;
  SavedTexts saved_texts_;
  std::vector<std::vector<Token>> place_texts_;       // [place]: what was kept last there
  std::deque<std::unique_ptr<RunningText>> running_;  // in order of arrival
  std::deque<std::unique_ptr<RunningText>> paused_;   // gave up their positions, oldest first
  std::vector<const RunningText*> ended_;             // in this step
  ServeTotals totals_;
  bool is_shown_ = false;  // the inbox has the texts that run
  double published_ = 0.0;
  double slots_published_ = 0.0;
};

}  // namespace moestro
