// SPDX-License-Identifier: MIT
// One text on its way through the server. A thread that serves a client makes the job. The engine
// thread computes the text and passes the written parts to the job.
//
// Thread rule: as each method has it. Shared by the two threads (std::shared_ptr).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "api/api_error.h"
#include "core/ids.h"
#include "grammar/grammar_state.h"
#include "serve/embed_work.h"
#include "serve/save_task.h"
#include "serve/scheduler_status.h"
#include "text/sampler.h"
#include "text/text_request.h"

namespace moestro {

struct JobOptions {
  TextOptions text;
  bool uses_prefixes = true;  // the text may begin with a kept prefix, and is kept as one
  std::shared_ptr<const Grammar> grammar = {};  // has been checked; null: no grammar
  QuietText quiet = {};  // parts of the text in which a grammar does not wait for its trigger
  double seconds = 0.0;  // most, from the job's making to the text's end; 0: no limit
};

using JobEvent = std::variant<TextPiece, PromptScores, PromptProgress, TextEnd, ApiError>;

class Job final : public TextReader {
 public:
  Job(JobOptions options, Sampler sampler);

  // Client's thread. The next event, or nullopt after `patience`. A TextEnd or an ApiError is the
  // last event.
  std::optional<JobEvent> Next(std::chrono::milliseconds patience);
  // Client's thread: the client has gone. Scheduler::Withdraw() reports this to the scheduler.
  void Cancel() { cancelled_.store(true, std::memory_order_release); }

  // Any thread.
  bool is_cancelled() const override { return cancelled_.load(std::memory_order_acquire); }
  // The job's client has got the last event, or has gone.
  bool is_over() const { return is_cancelled() || is_told_.load(std::memory_order_acquire); }
  const JobOptions& options() const { return options_; }
  const std::vector<Token>& prompt() const { return options_.text.prompt; }
  bool scores_prompt() const { return options_.text.scores_prompt(); }
  // Tokens of the answer so far.
  uint32_t generated() const { return generated_.load(std::memory_order_relaxed); }
  // The time, by SteadySeconds(), when the job's seconds are over; infinity: no limit.
  double deadline() const override { return deadline_; }

  // Engine thread.
  bool Tell(TextEvent event) override;
  // The last event of a job that the server does not serve to its end.
  void Refuse(const ApiError& error) { Put(error); }
  void CountToken() override { generated_.fetch_add(1, std::memory_order_relaxed); }
  // Once, when the text begins.
  Sampler TakeSampler() { return std::move(sampler_); }

 private:
  void Put(JobEvent event);

  const JobOptions options_;
  const double deadline_;
  Sampler sampler_;  // the engine thread's, once the job has been submitted; lacks the grammar
  std::atomic<bool> cancelled_ = false;
  std::atomic<bool> is_told_ = false;  // the last event
  std::atomic<uint32_t> generated_ = 0;
  std::mutex mutex_;
  std::condition_variable told_;
  std::deque<JobEvent> events_;
};

// The state that clients' threads and the engine thread share: jobs and place tasks that wait,
// whether the server goes down, the prompts in the step under way, the status.
//
// Thread rule: as each method has it. The lock is held for a few moves at most.
class JobInbox {
 public:
  // `parallel`: texts that run beside each other; `queue`: requests that may wait beyond those.
  JobInbox(uint32_t queue, uint32_t parallel) : queue_(queue), parallel_(parallel) {}

  // Any thread. The jobs of a request: the first job takes a place in the queue, the others begin
  // when no first job waits. 429: the queue is full; 503: the server is going down.
  ApiStatus Put(std::span<const std::shared_ptr<Job>> jobs);
  ApiStatus Put(std::shared_ptr<SaveTask> task);
  ApiStatus Put(std::shared_ptr<EmbedTask> task);
  // Any thread. True: the job's prompt is in the step under way.
  bool Cancel(Job& job);
  // Any thread. New jobs are refused from now on. After Stop() waiting jobs are not begun either.
  void Drain();
  void Stop();
  bool is_draining() const;
  // Any thread. The status that was published last, with the jobs that wait now.
  SchedulerStatus status() const;

  // The methods below: engine thread.
  bool is_stopped() const;
  bool is_empty() const;  // neither a job nor a task waits
  // Waits until a job or a task waits or the server goes down, `patience` at the longest.
  void Wait(std::chrono::duration<double> patience);

  struct Next {
    std::shared_ptr<Job> job;
    bool is_further = false;  // a later job of its request
  };
  // The job to begin next, which stays in the queue until Took(). `may_begin` decides about further
  // jobs.
  std::optional<Next> FindNext(const std::function<bool(const Job&)>& may_begin) const;
  // The job has left the queue. `text`: the state of the job's running text; nullopt: the text does
  // not run.
  void Took(const Job& job, const std::optional<TextStatus>& text);
  std::shared_ptr<SaveTask> TakeTask();        // nullptr: no task waits
  std::shared_ptr<EmbedTask> TakeEmbedTask();  // nullptr: no task waits
  // Whether any waiting later job of a request is not cancelled and satisfies `is_such`.
  bool HasFurther(const std::function<bool(const Job&)>& is_such) const;
  // Each gives the number of jobs that left the queue.
  size_t RemoveCancelled();
  size_t FailAll(const ApiError& error);

  // The jobs whose prompts the step under way computes.
  void SetPromptsInStep(std::vector<const Job*> jobs);
  // Publishes the status; without `with_slots` the experts' slots of the last publication stay.
  void Publish(SchedulerStatus status, bool with_slots);

 private:
  // REQUIRES: mutex_ is held.
  ApiStatus CheckRoom();
  bool has_work() const {
    return !waiting_.empty() || !further_.empty() || !tasks_.empty() || !embed_tasks_.empty();
  }

  const uint32_t queue_;
  const uint32_t parallel_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable work_;
  std::deque<std::shared_ptr<Job>> waiting_;  // the first job of each request
  std::deque<std::shared_ptr<Job>> further_;  // later jobs of requests
  std::deque<std::shared_ptr<SaveTask>> tasks_;
  std::deque<std::shared_ptr<EmbedTask>> embed_tasks_;
  std::vector<std::weak_ptr<const Job>> begun_;  // some have ended since
  std::vector<const Job*> prompts_in_step_;
  bool is_draining_ = false;
  bool is_stopped_ = false;
  uint64_t refused_ = 0;
  SchedulerStatus status_;
};

}  // namespace moestro
