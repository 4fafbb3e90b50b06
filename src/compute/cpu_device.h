// SPDX-License-Identifier: MIT
// ggml's CPU backend: its threads, the products that it computes, its functions by type.
//
// Thread rule: everything is called from one host thread. ggml's OpenMP team belongs to the thread
// that computes; a second caller would start a second spinning team on the same cores.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "compute/backend_calls.h"
#include "compute/expert_kernel.h"

namespace moestro {

// Measures how long the engine thread computed beside all other threads. The rest of a step's time
// is work that more threads make no faster.
//
// Thread rule: ScopedTeamTime on any thread of the team; seconds() on the engine thread while the
// team rests.

class TeamTime {
 public:
  double seconds() const { return seconds_; }

 private:
  friend class ScopedTeamTime;
  double seconds_ = 0.0;
};

// Adds the time from construction to destruction to `time`, on thread 0 alone. `time` may be null.
class ScopedTeamTime {
 public:
  ScopedTeamTime(TeamTime* time, int thread) : time_(thread == 0 ? time : nullptr) {
    if (time_ != nullptr) begun_ = std::chrono::steady_clock::now();
  }
  ~ScopedTeamTime() {
    if (time_ == nullptr) return;
    time_->seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  }
  ScopedTeamTime(const ScopedTeamTime&) = delete;
  ScopedTeamTime& operator=(const ScopedTeamTime&) = delete;

 private:
  TeamTime* time_;
  std::chrono::steady_clock::time_point begun_;
};

// ggml's per-type functions of the CPU variant that ggml picked for this machine. The functions
// live in a plug-in that is loaded at run time and hands out no address for them, so they are
// looked up by symbol in the plug-in's own file; ggml-cpu.h declares the symbol, plug-ins do not
// promise it.
class CpuTraits {
 public:
  // Loads ggml's backends if they are not loaded. kUnsupported without a CPU backend. A plug-in
  // without the symbol is no error: every Of() is then nullptr.
  static Result<CpuTraits> Load();
  // Traits as of a plug-in that lacks the symbol.
  static CpuTraits Missing() { return CpuTraits(nullptr); }

  bool found() const { return get_ != nullptr; }
  // Lives as long as the process; nullptr when the symbol is missing. Members may be null.
  const ggml_type_traits_cpu* Of(ggml_type type) const {
    return get_ != nullptr ? get_(type) : nullptr;
  }

 private:
  using Get = const ggml_type_traits_cpu* (*)(ggml_type);
  explicit CpuTraits(Get get) : get_(get) {}

  Get get_;
};

class CpuDevice {
 public:
  // threads: threads of the team, including the caller's; 0: the physical cores this process may
  // use. kUsage: more threads than ggml takes; kUnsupported: ggml finds no CPU backend to load.
  static Result<CpuDevice> Open(uint32_t threads);

  uint32_t threads() const { return threads_; }
  // Call before a team is created. REQUIRES: 1 to GGML_MAX_N_THREADS.
  void SetThreads(uint32_t threads);
  ggml_backend_t backend() const { return backend_.get(); }
  const CpuTraits& traits() const { return traits_; }
  TeamTime& team_time() const { return *team_time_; }  // time of all our nodes
  ggml_backend_dev_t handle() const { return ggml_backend_get_device(backend_.get()); }
  std::string description() const;  // "AMD EPYC ..., 2 threads"
  std::string plug_in() const;      // "ggml-cpu-zen4": the name of ggml's plug-in

  Status Compute(ggml_cgraph* graph) { return ComputeOn(backend(), graph); }
  // Checks `stop` between nodes, if the plug-in has an abort callback. kInterrupted: the results
  // are undefined.
  Status Compute(ggml_cgraph* graph, StopSignal& stop);
  // Plans a graph for ComputePlan(), any number of times, to the same effect as Compute().
  // kNoMemory.
  Result<GraphPlanPtr> Plan(ggml_cgraph* graph) { return PlanGraph(backend(), graph); }

  // Buffer types that store matrices in another layout and multiply them faster; may be empty.
  std::vector<ggml_backend_buffer_type_t> repacking_buffer_types() const;
  // True if ggml multiplies a [n_in, n_out] matrix of `type` stored in `buffer_type` by F32.
  bool CanMultiply(ggml_type type, int64_t n_in, int64_t n_out,
                   ggml_backend_buffer_type_t buffer_type) const;

 private:
  CpuDevice(BackendPtr backend, CpuTraits traits, ggml_backend_set_n_threads_t set_threads);

  BackendPtr backend_;
  CpuTraits traits_;
  std::unique_ptr<TeamTime> team_time_ = std::make_unique<TeamTime>();
  ggml_backend_set_n_threads_t set_threads_;
  uint32_t threads_ = 1;
  ggml_backend_set_abort_callback_t set_abort_callback_ = nullptr;  // null: the plug-in has none
};

// The kernels that work everywhere: ggml's own dot product with software prefetch, and a slow one
// that dequantises, for plug-ins that do not export their dot products.

// nullopt if ggml's CPU backend has no dot product for `type`.
std::optional<ExpertKernel> GenericKernel(ggml_type type, const CpuTraits& traits);

// Float activations, weights through ggml's to_float. nullopt if ggml-base cannot dequantise
// `type`.
std::optional<ExpertKernel> DequantisingKernel(ggml_type type);

}  // namespace moestro
