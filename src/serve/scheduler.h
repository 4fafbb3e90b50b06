// SPDX-License-Identifier: MIT
// The engine thread's work in a server: takes jobs, whose texts text/text_loop.h writes, and keeps
// computed tokens as prefixes of later prompts. A job that does not fit beside the running texts
// waits.
//
// Thread rule: as each method has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/api_error.h"
#include "base/work_limit.h"
#include "engine/embedder.h"
#include "engine/engine.h"
#include "grammar/grammar_state.h"
#include "model/vocab.h"
#include "serve/embed_work.h"
#include "serve/job.h"
#include "serve/prefix_cache.h"
#include "serve/save_task.h"
#include "serve/saved_texts.h"
#include "serve/scheduler_status.h"
#include "text/drafts.h"
#include "text/text_loop.h"

namespace moestro {

// Opens a grammar that has been checked. Engine thread; does not wait.
using OpenGrammar = std::function<Result<std::unique_ptr<TokenFilter>>(const Grammar& grammar)>;

struct SchedulerOptions {
  uint32_t parallel = 4;     // texts that are computed beside each other
  uint32_t queue = 64;       // jobs that wait beyond the next `parallel` ones
  double gap_seconds = 1.0;  // see StepPlanner
  // A text that cannot be cut back to every position can go back to each so many-th token, beside
  // the job's checkpoints; 0: to the checkpoints alone.
  uint32_t checkpoint_every = 2048;
  DraftOptions draft = {};              // of each text
  double rest_seconds = 1.0;            // a prefix that was not used for so long is written to disk
  std::string cache_folder = {};        // for prefixes; empty: no prefix is written to disk
  std::string cache_key = {};           // see PrefixFiles
  uint64_t cache_disk = 0;              // bytes
  std::string saved_texts_folder = {};  // for texts that clients save; empty: no client can
  uint32_t most_saved_texts = 256;
  Embedder* embedder = nullptr;   // of the engine; null: the engine writes texts
  OpenGrammar open_grammar = {};  // empty: no job has a grammar. At most `parallel` are open
};

class Scheduler final : private TextLoopOwner {
 public:
  // Engine thread. Engine and vocabulary must outlive this. REQUIRES: parallel <= engine.chunk().
  Scheduler(Engine& engine, const Vocab& vocab, SchedulerOptions options,
            Clock clock = SteadySeconds);

  // Any thread. Jobs of equal prompts compute the prompt once. 429: the queue is full; 503: the
  // server is going down. The first job of a request takes a place in the queue. The request's
  // further jobs begin when no first job waits. So a request of many jobs fits a short queue and
  // holds up no other request.
  ApiStatus Submit(std::span<const std::shared_ptr<Job>> jobs) { return inbox_.Put(jobs); }
  ApiStatus Submit(const std::shared_ptr<Job>& job) { return Submit(std::span(&job, 1)); }
  // Any thread. Tasks are done between two steps, one after another. Errors: 429 and 503 as above.
  // Errors that the task gets later: 400, the number is no place, or the file cannot be used; 404,
  // no such file, or the place has no text; 409, a text is being computed at the place; 503, the KV
  // cache has no room for the text now.
  ApiStatus Submit(std::shared_ptr<SaveTask> task) { return inbox_.Put(std::move(task)); }
  // Any thread. The texts' embeddings, computed beside those of other requests. REQUIRES: the
  // options have an embedder.
  ApiStatus Submit(std::shared_ptr<EmbedTask> task) { return inbox_.Put(std::move(task)); }
  bool has_saved_texts() const { return !options_.saved_texts_folder.empty(); }
  // Any thread. The client of the job has gone. If the job's prompt is being computed, the step is
  // stopped within a layer's time.
  void Withdraw(Job& job);
  // Any thread. New jobs are refused from now on. Run() returns when the accepted jobs have ended.
  void Drain() { inbox_.Drain(); }
  bool is_draining() const { return inbox_.is_draining(); }
  // Any thread. All jobs that have not ended fail, and Run() returns.
  void Stop();
  // Any thread; does not wait. The texts that wait and run now: each job is among them from
  // Submit() on. The texts' figures are as of the last step or the last tenth of a second.
  SchedulerStatus status() const { return inbox_.status(); }

  // Engine thread. Works until Drain() or Stop(), then writes kept prefixes to disk. Fails with
  // Engine::closed() once the engine is closed; then no prefix is written.
  Status Run();

 private:
  // As in TextLoopOwner.
  bool MakeRoom(uint32_t positions, uint32_t n_texts, Effort effort) override;
  void PromptsInStep(std::span<const RunningText* const> texts) override;
  void TextsStepped() override { Publish(false); }
  bool is_stopped() const override { return inbox_.is_stopped(); }
  void Ended(std::unique_ptr<RunningText> text) override;

  void Admit();
  const RunningText* TwinOf(const Job& job) const;
  std::optional<Sequence> SharedPrompt(const Job& job) const;
  void HoldForTwins(RunningText& text, const Job& job);
  void LetGoOfHeldPrompts();
  bool MayBegin(const Job& job) const;
  bool AdmitOne(const JobInbox::Next& next);
  Result<std::unique_ptr<TokenFilter>> GrammarFor(const Job& job) const;
  void Start(const std::shared_ptr<Job>& job, std::unique_ptr<TokenFilter> grammar,
             Sequence sequence, uint32_t recomputed);
  bool ResumeOne();
  Sequence BeginSequence(const Job& job);
  void RemoveCancelled();
  void Keep(RunningText& text);
  void DoPlaceTask();
  bool EmbedSome();
  ApiResult<SaveFigures> Do(const SaveTask& task);
  ApiResult<SaveFigures> SaveText(const SaveTask& task);
  ApiResult<SaveFigures> RestoreText(const SaveTask& task);
  void FailAll(const ApiError& error);
  void Publish(bool now);
  ServeTotals Totals() const;

  Engine& engine_;
  const Vocab& vocab_;
  const SchedulerOptions options_;
  const Clock clock_;
  JobInbox inbox_;
  PrefixCache prefixes_;
  SavedTexts saved_texts_;
  std::vector<std::vector<Token>> place_texts_;  // [place]: the last text that ended at the place
  std::map<const RunningText*, std::shared_ptr<Job>> jobs_;  // of the loop's texts
  TextLoop loop_;
  std::optional<EmbedWork> embeddings_;    // nullopt: the engine writes texts
  ServeTotals totals_;                     // without the loop's counts
  std::optional<uint64_t> shown_changes_;  // of the loop, when the inbox last had its texts
  double published_ = 0.0;
  double slots_published_ = 0.0;
};

}  // namespace moestro
