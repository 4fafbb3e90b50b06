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
#include "api/reply.h"
#include "core/ids.h"
#include "grammar/grammar_state.h"
#include "text/generate.h"
#include "text/quiet_filter.h"
#include "text/sampler.h"

namespace moestro {

struct JobOptions {
  std::vector<Token> prompt;
  GenerateOptions generate;     // stop strings, most tokens
  bool spells_control = false;  // control tokens are text, for a reader of marks in the answer
  bool wants_logprobs = false;
  uint32_t top_logprobs = 0;
  // Numbers of the prompt's tokens after which later prompts may part from this one, rising. Empty:
  // unknown.
  std::vector<uint32_t> checkpoints = {};
  bool uses_prefixes = true;  // the text may begin with a kept prefix, and is kept as one
  std::shared_ptr<const Grammar> grammar = {};  // has been checked; null: no grammar
  QuietText quiet = {};  // parts of the text in which a grammar does not wait for its trigger
  std::vector<Token> end_tokens = {};  // end the text as the model's own do
  uint32_t min_tokens = 0;  // before so many tokens no end token and no stop string ends the text
  std::vector<Token> early_ends = {};  // tokens that are not picked before min_tokens
  // The first token of the prompt that gets log-probabilities; nullopt: the answer's tokens do.
  std::optional<uint32_t> scored_from = {};
  bool wants_progress = false;   // progress of the prompt
  double seconds = 0.0;          // most, from the job's making to the text's end; 0: no limit
  double writing_seconds = 0.0;  // most, from the first token to a line's end; 0: no limit

  bool scores_prompt() const { return scored_from.has_value(); }
};

// The log-probabilities of a scored prompt, once, before any text.
struct JobPrompt {
  std::vector<TokenLogprob> logprobs;
};

// Text that has become certain; may be empty while tokens are held back.
struct JobText {
  std::string text;
  std::vector<TokenLogprob> logprobs;
  uint32_t tokens = 0;  // picked since the last JobText
};

struct JobEnd {
  StopReason reason = StopReason::kEndToken;
  std::string stop;  // the stop string that ended the text; empty: no stop string did
  ReplyUsage usage;
};

using JobEvent = std::variant<JobText, JobPrompt, PromptProgress, JobEnd, ApiError>;

class Job {
 public:
  Job(JobOptions options, Sampler sampler);

  // Client's thread. The next event, or nullopt after `patience`. A JobEnd or an ApiError is the
  // last event.
  std::optional<JobEvent> Next(std::chrono::milliseconds patience);
  // Client's thread: the client has gone. Scheduler::Withdraw() reports this to the scheduler.
  void Cancel() { cancelled_.store(true, std::memory_order_release); }

  // Any thread.
  bool is_cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // The job's client has got the last event, or has gone.
  bool is_over() const { return is_cancelled() || is_told_.load(std::memory_order_acquire); }
  const JobOptions& options() const { return options_; }
  // Tokens of the answer so far.
  uint32_t generated() const { return generated_.load(std::memory_order_relaxed); }
  // The time, by SteadySeconds(), when the job's seconds are over; infinity: no limit.
  double deadline() const { return deadline_; }

  // Engine thread.
  void Tell(JobEvent event);
  void CountToken() { generated_.fetch_add(1, std::memory_order_relaxed); }
  // Once, when the text begins.
  Sampler TakeSampler() { return std::move(sampler_); }

 private:
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
