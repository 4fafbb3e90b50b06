// SPDX-License-Identifier: MIT
// One text on its way through the server. A thread that serves a client makes the job. The engine
// thread computes the text and passes the written parts to the job.
//
// Thread rule: as each method has it. Shared by the two threads (std::shared_ptr).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "api/api_error.h"
#include "core/ids.h"
#include "grammar/grammar_state.h"
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

}  // namespace moestro
