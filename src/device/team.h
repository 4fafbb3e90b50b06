// SPDX-License-Identifier: MIT
// Our own code on ggml's compute threads: a graph of one custom node. A second pool of threads
// would fight the first one for its cores (facts: 35x stalls), so there is none.
#pragma once

#include <ggml-cpp.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"
#include "device/backend_calls.h"
#include "device/cpu_device.h"

namespace moestro {

class Team {
 public:
  static Result<Team> Create(CpuDevice& device);

  uint32_t threads() const { return device_->threads(); }
  TeamTime& time() const { return device_->team_time(); }

  // Calls work(thread, n_threads) on every thread of the team at once and returns when all have
  // returned. Thread 0 is the caller. What `work` throws ends its own thread's part alone; then
  // kNoMemory, for nothing but a lack of it is thrown here.
  template <class Work>
  Status Run(Work&& work) {
    call_->invoke = [](void* target, int thread, int n_threads) {
      (*static_cast<std::remove_reference_t<Work>*>(target))(thread, n_threads);
    };
    call_->target = &work;
    Status done = ComputePlan(plan_);
    call_->target = nullptr;
    TRY_STATUS(call_->TakeFailure());
    return done;
  }

 private:
  struct Call {
    void (*invoke)(void* target, int thread, int n_threads) = nullptr;
    void* target = nullptr;
    std::mutex mutex;
    std::string failure;  // what was thrown first; under the mutex
    std::atomic<bool> has_failed{false};

    void Note(std::string_view why);
    Status TakeFailure();
  };
  Team() = default;

  CpuDevice* device_ = nullptr;
  ggml_context_ptr context_;
  BufferPtr buffer_;
  PlanPtr plan_;
  std::unique_ptr<Call> call_;  // the node's userdata points here, so it must not move
};

}  // namespace moestro
