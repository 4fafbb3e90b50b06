// SPDX-License-Identifier: MIT
// Turns the engine thread's events into the bytes of a client's answer.
//
// Thread rule: a client's thread; the thread waits for the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_request.h"
#include "chat/answer_style.h"
#include "serve/body_room.h"
#include "serve/job.h"
#include "serve/request_log.h"
#include "serve/scheduler.h"

namespace moestro {

// A request after parsing: request.n jobs for each prompt, and how to read the answers.
struct Work {
  ApiRequest request;  // without the texts, which are tokens by now
  AnswerStyle style = {};
  std::vector<std::shared_ptr<Job>> jobs = {};
  std::shared_ptr<const Grammar> grammar = {};  // of all jobs; null: no grammar
  std::vector<std::string> echoes = {};         // each prompt as text, if requested
  uint64_t id_seed = 0;                         // makes the ids of calls
  double submitted = 0.0;                       // by SteadySeconds()
  std::unique_ptr<BodyRoom::Share> kept = {};   // share of Preparing::kept()
  size_t kept_bytes = 0;
};

// The number of tokens of all prompts.
uint32_t PromptLength(const Work& work);

// Withdraws, in the destructor, the jobs that have not ended.
class JobGuard {
 public:
  JobGuard(Scheduler& scheduler, std::vector<std::shared_ptr<Job>> jobs);
  ~JobGuard();
  JobGuard(const JobGuard&) = delete;
  JobGuard& operator=(const JobGuard&) = delete;
  // Call when the first job that is left has ended.
  void Ended() { jobs_.erase(jobs_.begin()); }

 private:
  Scheduler& scheduler_;
  std::vector<std::shared_ptr<Job>> jobs_;
};

// The functions by which a reply reaches a client, and the record of the request.
struct Client {
  std::function<bool(std::string_view)> write;  // false: the client is gone
  std::function<bool()> is_gone;
  RequestRecord& record;
  bool wants_pings = false;
};

// Writes all choices in order, in the writer's form. Errors: the error of a job that failed; 504: a
// job's time was over before the answer began.
ApiStatus Relay(const Work& work, ReplyWriter& writer, const Client& client, JobGuard& guard);

}  // namespace moestro
