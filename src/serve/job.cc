// SPDX-License-Identifier: MIT
#include "serve/job.h"

#include <limits>
#include <utility>

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

}  // namespace moestro
