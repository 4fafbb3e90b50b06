// SPDX-License-Identifier: MIT
// The way of an answer from the engine thread's events to the client's bytes.
//
// Thread rule: a client's thread; it waits for the engine.
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
#include "serve/request_record.h"
#include "serve/scheduler.h"

namespace moestro {

// What a request has become: request.n jobs for each prompt, and how to read the answers.
struct Work {
  ApiRequest request;  // without its texts, which are tokens by now
  AnswerStyle style = {};
  std::vector<std::shared_ptr<Job>> jobs = {};
  std::shared_ptr<const Grammar> grammar = {};  // of all jobs; null: none
  std::vector<std::string> echoes = {};         // each prompt as text, if asked for
  uint64_t id_seed = 0;                         // makes the ids of calls
  double submitted = 0.0;                       // by SteadySeconds()
  std::unique_ptr<BodyRoom::Share> kept = {};   // of Preparing::kept()
  size_t kept_bytes = 0;
};

// Tokens of all prompts.
uint32_t PromptLength(const Work& work);

// Withdraws what has not ended when the reply does.
class JobGuard {
 public:
  JobGuard(Scheduler& scheduler, std::vector<std::shared_ptr<Job>> jobs);
  ~JobGuard();
  JobGuard(const JobGuard&) = delete;
  JobGuard& operator=(const JobGuard&) = delete;
  // The first one that is left has ended.
  void Ended() { jobs_.erase(jobs_.begin()); }

 private:
  Scheduler& scheduler_;
  std::vector<std::shared_ptr<Job>> jobs_;
};

// How a reply reaches its client, and what is written down about it.
struct Client {
  std::function<bool(std::string_view)> write;  // false: it is gone
  std::function<bool()> is_gone;
  RequestRecord& record;
  bool wants_pings = false;
};

// All choices in order, as the writer puts them. The error of a job that failed; 504 for one whose
// time was over before its answer began.
ApiStatus Relay(const Work& work, ReplyWriter& writer, const Client& client, JobGuard& guard);

}  // namespace moestro
