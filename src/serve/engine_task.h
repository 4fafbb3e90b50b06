// SPDX-License-Identifier: MIT
// A client's request that is no text, on the way to the engine thread and back.
//
// Thread rule: as each method has it. Shared by the two threads (std::shared_ptr).
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <utility>

#include "api/api_error.h"

namespace moestro {

template <class Done>
class EngineTask {
 public:
  EngineTask() : done_(told_.get_future()) {}
  EngineTask(const EngineTask&) = delete;
  EngineTask& operator=(const EngineTask&) = delete;

  // Client's thread, until a result comes. The task's result; nullopt after `patience`.
  std::optional<ApiResult<Done>> Wait(std::chrono::milliseconds patience) {
    if (done_.wait_for(patience) != std::future_status::ready) return std::nullopt;
    return done_.get();
  }
  // Client's thread: the client has gone.
  void Cancel() { cancelled_.store(true, std::memory_order_release); }
  // Any thread.
  bool is_cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // Engine thread, once.
  void Tell(ApiResult<Done> result) { told_.set_value(std::move(result)); }

 private:
  std::atomic<bool> cancelled_ = false;
  std::promise<ApiResult<Done>> told_;
  std::future<ApiResult<Done>> done_;
};

}  // namespace moestro
