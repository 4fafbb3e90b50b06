// SPDX-License-Identifier: MIT
// A client's request about the text that was computed at a place, on the way to the engine thread
// and back.
//
// Thread rule: as each method has it. Shared by the two threads (std::shared_ptr).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <utility>

#include "api/server_bodies.h"

namespace moestro {

class SaveTask {
 public:
  // `file`: a plain name; empty for erasing.
  SaveTask(SaveAction action, uint32_t place, std::string file)
      : action_(action), place_(place), file_(std::move(file)), done_(told_.get_future()) {}

  // Client's thread, until a result comes. The task's result; nullopt after `patience`.
  std::optional<ApiResult<SaveFigures>> Wait(std::chrono::milliseconds patience) {
    if (done_.wait_for(patience) != std::future_status::ready) return std::nullopt;
    return done_.get();
  }
  // Client's thread: the client has gone. A task that has begun is completed all the same.
  void Cancel() { cancelled_.store(true, std::memory_order_release); }

  // Any thread.
  bool is_cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  SaveAction action() const { return action_; }
  uint32_t place() const { return place_; }
  const std::string& file() const { return file_; }

  // Engine thread, once.
  void Tell(ApiResult<SaveFigures> result) { told_.set_value(std::move(result)); }

 private:
  const SaveAction action_;
  const uint32_t place_;
  const std::string file_;
  std::atomic<bool> cancelled_ = false;
  std::promise<ApiResult<SaveFigures>> told_;
  std::future<ApiResult<SaveFigures>> done_;
};

}  // namespace moestro
