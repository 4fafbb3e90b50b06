// SPDX-License-Identifier: MIT
// Our own code on ggml's compute threads: a graph of one custom node. A second pool of threads
// would fight the first one for its cores (facts: 35x stalls), so there is none.
#pragma once

#include <ggml-cpp.h>

#include <memory>
#include <type_traits>

#include "base/result.h"
#include "device/cpu_device.h"

namespace moestro {

class Team {
 public:
  static Result<Team> Create(CpuDevice& device);

  uint32_t threads() const { return device_->threads(); }

  // Calls work(thread, n_threads) on every thread of the team at once and returns when all have
  // returned. Thread 0 is the caller. `work` must not throw.
  template <class Work>
  Status Run(Work&& work) {
    call_->invoke = [](void* target, int thread, int n_threads) {
      (*static_cast<std::remove_reference_t<Work>*>(target))(thread, n_threads);
    };
    call_->target = &work;
    Status done = device_->Compute(graph_);
    call_->target = nullptr;
    return done;
  }

 private:
  struct Call {
    void (*invoke)(void* target, int thread, int n_threads) = nullptr;
    void* target = nullptr;
  };
  Team() = default;

  CpuDevice* device_ = nullptr;
  ggml_context_ptr context_;
  ggml_backend_buffer_ptr buffer_;
  ggml_cgraph* graph_ = nullptr;  // owned by context_
  std::unique_ptr<Call> call_;    // the node's userdata points here, so it must not move
};

}  // namespace moestro
