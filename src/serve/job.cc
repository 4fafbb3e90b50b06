// SPDX-License-Identifier: MIT
#include "serve/job.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/text.h"
#include "base/work_limit.h"

namespace moestro {

namespace {

// A prompt without checkpoints is kept for its own repetition, without the last token, which is
// computed in any case.
JobOptions WithCheckpoint(JobOptions options) {
  TextOptions& text = options.text;
  if (text.checkpoints.empty() && text.prompt.size() > 1) {
    text.checkpoints.push_back(static_cast<uint32_t>(text.prompt.size() - 1));
  }
  return options;
}

}  // namespace

Job::Job(JobOptions options, Sampler sampler)
    : options_(WithCheckpoint(std::move(options))),
      deadline_(options_.seconds > 0.0 ? SteadySeconds() + options_.seconds
                                       : std::numeric_limits<double>::infinity()),
      sampler_(std::move(sampler)) {}

std::optional<JobEvent> Job::Next(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (!told_.wait_for(lock, patience, [this] { return !events_.empty(); })) return std::nullopt;
  JobEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

bool Job::Tell(TextEvent event) {
  if (const auto* error = std::get_if<Error>(&event)) {
    Put(ToApiError(*error));
  } else if (auto* part = std::get_if<TextPiece>(&event)) {
    Put(std::move(*part));
  } else if (auto* scores = std::get_if<PromptScores>(&event)) {
    Put(std::move(*scores));
  } else if (const auto* progress = std::get_if<PromptProgress>(&event)) {
    Put(*progress);
  } else {
    Put(std::get<TextEnd>(std::move(event)));
  }
  return true;
}

void Job::Put(JobEvent event) {
  const bool is_last =
      std::holds_alternative<TextEnd>(event) || std::holds_alternative<ApiError>(event);
  // Stored before the client can send another request.
  if (is_last) is_told_.store(true, std::memory_order_release);
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  told_.notify_one();
}

ApiStatus JobInbox::CheckRoom() {
  if (is_draining_) return std::unexpected(GoingDown());
  std::erase_if(begun_, [](const std::weak_ptr<const Job>& begun) {
    const std::shared_ptr<const Job> job = begun.lock();
    return !job || job->is_over();
  });
  const size_t waiting = waiting_.size() + tasks_.size() + embed_tasks_.size();
  const size_t can_begin = parallel_ - std::min<size_t>(begun_.size(), parallel_);
  if (waiting < queue_ + can_begin) return {};
  ++refused_;
  return std::unexpected(ApiError{
      .status = 429,
      .type = "rate_limit_error",
      .message = Format("{} texts are being computed and {} requests wait, as many as may; ask "
                        "again later, or start the server with a larger --queue",
                        begun_.size(), waiting),
      .code = "queue_full"});
}

ApiStatus JobInbox::Put(std::span<const std::shared_ptr<Job>> jobs) {
  {
    const std::lock_guard lock(mutex_);
    TRY_STATUS(CheckRoom());
    if (jobs.empty()) return {};
    waiting_.push_back(jobs.front());
    further_.insert(further_.end(), jobs.begin() + 1, jobs.end());
  }
  work_.notify_one();
  return {};
}

ApiStatus JobInbox::Put(std::shared_ptr<SaveTask> task) {
  {
    const std::lock_guard lock(mutex_);
    TRY_STATUS(CheckRoom());
    tasks_.push_back(std::move(task));
  }
  work_.notify_one();
  return {};
}

ApiStatus JobInbox::Put(std::shared_ptr<EmbedTask> task) {
  {
    const std::lock_guard lock(mutex_);
    TRY_STATUS(CheckRoom());
    embed_tasks_.push_back(std::move(task));
  }
  work_.notify_one();
  return {};
}

bool JobInbox::Cancel(Job& job) {
  job.Cancel();
  bool is_in_step = false;
  {
    const std::lock_guard lock(mutex_);
    is_in_step = std::ranges::contains(prompts_in_step_, &job);
  }
  work_.notify_one();
  return is_in_step;
}

void JobInbox::Drain() {
  {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
  }
  work_.notify_one();
}

void JobInbox::Stop() {
  {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
    is_stopped_ = true;
  }
  work_.notify_one();
}

bool JobInbox::is_draining() const {
  const std::lock_guard lock(mutex_);
  return is_draining_;
}

bool JobInbox::is_stopped() const {
  const std::lock_guard lock(mutex_);
  return is_stopped_;
}

bool JobInbox::is_empty() const {
  const std::lock_guard lock(mutex_);
  return !has_work();
}

SchedulerStatus JobInbox::status() const {
  const std::lock_guard lock(mutex_);
  SchedulerStatus status = status_;
  status.waiting += static_cast<uint32_t>(waiting_.size() + further_.size() + embed_tasks_.size());
  status.totals.refused = refused_;
  return status;
}

void JobInbox::Wait(std::chrono::duration<double> patience) {
  std::unique_lock lock(mutex_);
  work_.wait_for(lock, patience, [this] { return has_work() || is_draining_; });
}

std::optional<JobInbox::Next> JobInbox::FindNext(
    const std::function<bool(const Job&)>& may_begin) const {
  const std::lock_guard lock(mutex_);
  if (!waiting_.empty()) return Next{.job = waiting_.front()};
  const auto found = std::ranges::find_if(
      further_, [&](const std::shared_ptr<Job>& job) { return may_begin(*job); });
  if (found == further_.end()) return std::nullopt;
  return Next{.job = *found, .is_further = true};
}

void JobInbox::Took(const Job& job, const std::optional<TextStatus>& text) {
  const std::lock_guard lock(mutex_);
  for (auto* queue : {&waiting_, &further_}) {
    const auto found = std::ranges::find(*queue, &job, &std::shared_ptr<Job>::get);
    if (found == queue->end()) continue;
    begun_.push_back(*found);
    queue->erase(found);
  }
  if (text) status_.texts.push_back(*text);
}

std::shared_ptr<SaveTask> JobInbox::TakeTask() {
  const std::lock_guard lock(mutex_);
  if (tasks_.empty()) return nullptr;
  std::shared_ptr<SaveTask> task = std::move(tasks_.front());
  tasks_.pop_front();
  return task;
}

std::shared_ptr<EmbedTask> JobInbox::TakeEmbedTask() {
  const std::lock_guard lock(mutex_);
  if (embed_tasks_.empty()) return nullptr;
  std::shared_ptr<EmbedTask> task = std::move(embed_tasks_.front());
  embed_tasks_.pop_front();
  return task;
}

bool JobInbox::HasFurther(const std::function<bool(const Job&)>& is_such) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(further_, [&](const std::shared_ptr<Job>& job) {
    return !job->is_cancelled() && is_such(*job);
  });
}

size_t JobInbox::RemoveCancelled() {
  const std::lock_guard lock(mutex_);
  size_t removed = 0;
  for (auto* queue : {&waiting_, &further_}) {
    removed += std::erase_if(*queue, [](const auto& job) { return job->is_cancelled(); });
  }
  return removed;
}

size_t JobInbox::FailAll(const ApiError& error) {
  const std::lock_guard lock(mutex_);
  size_t failed = 0;
  for (auto* queue : {&waiting_, &further_}) {
    for (const auto& job : *queue) job->Refuse(error);
    failed += queue->size();
    queue->clear();
  }
  for (const auto& task : tasks_) task->Tell(std::unexpected(error));
  tasks_.clear();
  for (const auto& task : embed_tasks_) task->Tell(std::unexpected(error));
  failed += embed_tasks_.size();
  embed_tasks_.clear();
  return failed;
}

void JobInbox::SetPromptsInStep(std::vector<const Job*> jobs) {
  const std::lock_guard lock(mutex_);
  prompts_in_step_ = std::move(jobs);
}

void JobInbox::Publish(SchedulerStatus status, bool with_slots) {
  const std::lock_guard lock(mutex_);
  if (!with_slots) status.slots = std::move(status_.slots);
  status_ = std::move(status);
}

}  // namespace moestro
