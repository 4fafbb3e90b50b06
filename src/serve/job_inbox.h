// SPDX-License-Identifier: MIT
// The state that clients' threads and the engine thread share: jobs and place tasks that wait,
// whether the server goes down, the prompts in the step under way, the status.
//
// Thread rule: as each method has it. The lock is held for a few moves at most.
#pragma once

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
#include <vector>

#include "api/api_error.h"
#include "serve/job.h"
#include "serve/save_task.h"
#include "serve/scheduler_status.h"

namespace moestro {

class JobInbox {
 public:
  // `parallel`: texts that run beside each other; `queue`: requests that may wait beyond those.
  JobInbox(uint32_t queue, uint32_t parallel) : queue_(queue), parallel_(parallel) {}

  // Any thread. The jobs of a request: the first job takes a place in the queue, the others begin
  // when no first job waits. 429: the queue is full; 503: the server is going down.
  ApiStatus Put(std::span<const std::shared_ptr<Job>> jobs);
  ApiStatus Put(std::shared_ptr<SaveTask> task);
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
  std::shared_ptr<SaveTask> TakeTask();  // nullptr: no task waits
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
  bool has_work() const { return !waiting_.empty() || !further_.empty() || !tasks_.empty(); }

  const uint32_t queue_;
  const uint32_t parallel_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable work_;
  std::deque<std::shared_ptr<Job>> waiting_;  // the first job of each request
  std::deque<std::shared_ptr<Job>> further_;  // later jobs of requests
  std::deque<std::shared_ptr<SaveTask>> tasks_;
  std::vector<std::weak_ptr<const Job>> begun_;  // some have ended since
  std::vector<const Job*> prompts_in_step_;
  bool is_draining_ = false;
  bool is_stopped_ = false;
  uint64_t refused_ = 0;
  SchedulerStatus status_;
};

}  // namespace moestro
