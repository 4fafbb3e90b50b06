// SPDX-License-Identifier: MIT
// Runs our own code on ggml's compute threads: a graph of one custom node. A second pool of threads
// would compete with the first one for cores (both stall, 16 to 35 times as long), so none exists.
//
// ggml takes some microseconds to bring its threads together, and its barriers make a system call
// each. A decode step does both many hundred times, so the threads can be held together for the
// step (docs/decisions/0036).
//
// Thread rule: the engine thread.
#pragma once

#include <ggml-cpp.h>
#include <ggml.h>

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"
#include "base/wait_word.h"
#include "compute/backend_calls.h"
#include "compute/cpu_device.h"

namespace moestro {

// Finds the functions of custom nodes, so that code of ours can run a graph that has no other
// nodes. ggml keeps a node's function in the node's parameters, at an undocumented place; a trial
// node shows whether the place is the assumed one.
//
// Thread rule: the engine thread.

struct CustomCall {
  ggml_custom_op_t work = nullptr;
  void* userdata = nullptr;
  bool is_alone = false;  // runs on one thread
};

class CustomCalls {
 public:
  CustomCalls();
  // nullopt: `node` is no custom node, or the place of its function is not known.
  std::optional<CustomCall> Of(const ggml_tensor* node) const;

 private:
  bool is_known_ = false;
};

class Team {
 public:
  static Result<Team> Create(CpuDevice& device);

  CpuDevice& device() const { return *device_; }
  uint32_t threads() const { return device_->threads(); }
  TeamTime& time() const { return device_->team_time(); }

  // Calls work(thread, n_threads) on every thread of the team at once and returns when all calls
  // have returned. Thread 0 is the caller. An exception of `work` ends the part of its own thread
  // alone; Run() then returns kNoMemory, since `work` throws for lack of memory only.
  template <class Work>
  Status Run(Work&& work) {
    call_->work = Callback::Of(work);
    const Status done = call_->is_held ? RunHeld() : ComputePlan(plan_);
    TRY_STATUS(call_->TakeFailure());
    return done;
  }

  // Runs `body` on the caller and holds all threads together meanwhile: between two calls of Run()
  // in `body` threads wait for the next call. Other graphs of ggml run on one thread in `body`.
  // Within another Hold() this only runs `body`. An exception of `body` is thrown again.
  template <class Body>
  Status Hold(Body&& body) {
    if (call_->is_held || threads() == 1) {
      body();
      return {};
    }
    auto call_body = [&body](int /*thread*/, int /*n_threads*/) { body(); };
    const Status done = HoldFor(Callback::Of(call_body));
    TRY_STATUS(call_->TakeFailure());
    return done;
  }

 private:
  struct Callback {
    void (*invoke)(void* target, int thread, int n_threads) = nullptr;
    void* target = nullptr;

    template <class Work>
    static Callback Of(Work& work) {
      return {.invoke =
                  [](void* target, int thread, int n_threads) {
                    (*static_cast<std::remove_reference_t<Work>*>(target))(thread, n_threads);
                  },
              .target = &work};
    }
    void operator()(int thread, int n_threads) const { invoke(target, thread, n_threads); }
  };

  struct Call {
    Callback work;
    Callback body;  // the body of Hold(); empty: none
    bool is_held = false;
    int n_threads = 0;          // threads that are held
    bool is_over = false;       // read after a change of `jobs`
    std::exception_ptr thrown;  // the exception of the body
    alignas(64) WaitWord jobs;  // counts calls of Run() while threads are held, and the end
    alignas(64) WaitWord done;  // threads beside the caller that have returned from the current job
    std::mutex mutex;
    std::string failure;  // text of the first exception; under the mutex
    std::atomic<bool> has_failed{false};

    void Enter(int thread, int threads);
    void HoldOthers(int threads);
    void Serve(int thread, int threads, uint32_t seen);
    void Invoke(const Callback& callback, int thread, int threads);
    void Note(std::string_view why);
    Status TakeFailure();
  };
  Team() = default;
  Status RunHeld();
  Status HoldFor(const Callback& body);

  CpuDevice* device_ = nullptr;
  ggml_context_ptr context_;
  BufferPtr buffer_;
  GraphPlanPtr plan_;
  std::unique_ptr<Call> call_;  // the node's userdata points here, so it must not move
};

}  // namespace moestro
