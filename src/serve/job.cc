// SPDX-License-Identifier: MIT
#include "serve/job.h"

#include <limits>
#include <utility>

#include "base/clock.h"

namespace moestro {

Job::Job(JobOptions options, Sampler sampler)
    : options_(std::move(options)),
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

void Job::Tell(JobEvent event) {
  const bool is_last =
      std::holds_alternative<JobEnd>(event) || std::holds_alternative<ApiError>(event);
  // Stored before the client can send another request.
  if (is_last) is_told_.store(true, std::memory_order_release);
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  told_.notify_one();
}

}  // namespace moestro
