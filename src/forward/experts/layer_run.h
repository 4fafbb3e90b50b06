// SPDX-License-Identifier: MIT
// One layer of experts on the compute team: what its threads share and how they divide the work.
// Used by expert_exec.cc alone.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "device/host_memory.h"
#include "device/team.h"
#include "forward/experts/expert_exec.h"
#include "residency/lease_stream.h"
#include "residency/residency.h"

namespace moestro {

// One of the three things to do with an expert, cut into tasks that threads claim.
struct Stage {
  std::atomic<uint32_t> next{0};
  std::atomic<uint32_t> done{0};
  uint32_t tasks = 0;

  void Reset(uint32_t n) {
    next.store(0, std::memory_order_relaxed);
    done.store(0, std::memory_order_relaxed);
    tasks = n;
  }
  bool is_done() const { return done.load(std::memory_order_acquire) == tasks; }
  std::optional<uint32_t> Claim() {
    if (next.load(std::memory_order_relaxed) >= tasks) return std::nullopt;
    const uint32_t task = next.fetch_add(1, std::memory_order_relaxed);
    return task < tasks ? std::optional(task) : std::nullopt;
  }
  void Finish() { done.fetch_add(1, std::memory_order_acq_rel); }
};

// What a form's experts need beyond their kernels.
struct RunForm {
  const FormKernels* kernels = nullptr;
  uint32_t hidden_rows = 0;         // weight rows of gate and of up in a task
  uint32_t down_rows = 0;           // weight rows of down in a task
  std::array<uint32_t, 2> input{};  // which quantised input gate and up take
};

// One expert's progress through a layer. Two experts' counters are never in one cache line.
struct alignas(64) JobState {
  const RunForm* form = nullptr;
  Stage hidden;    // gate and up rows -> activation(gate, up)
  Stage quantise;  // the products, for the down matrix
  Stage down;
  std::array<const std::byte*, kMatrices> matrix{};  // written before the bit in landed is set
  std::atomic<uint8_t> landed{0};                    // bit per matrix
  bool let_go = false;                               // thread 0 only

  bool has(size_t m) const { return (landed.load(std::memory_order_acquire) >> m & 1U) != 0; }
};

// Buffers that every layer uses again.
struct ExpertScratch {
  ExpertScratch(const ExpertExec::Parts& p, const ExpertExec::Limits& l)
      : parts(p), limits(l), jobs(l.n_expert), up_rows(p.team.threads()) {}

  ExpertExec::Parts parts;
  ExpertExec::Limits limits;
  std::vector<RunForm> forms;               // by form
  std::vector<ExpertKernel> input_kernels;  // [input]
  HostMemory memory;
  std::byte* input = nullptr;       // [input][rows][activation_bytes_embd]
  float* products = nullptr;        // [pairs][n_ff]
  std::byte* products_q = nullptr;  // [pairs][activation_bytes_ff]
  float* results = nullptr;         // [pairs][n_embd]
  std::vector<JobState> jobs;
  std::vector<std::vector<float>> up_rows;  // [thread]: one block of the up matrix's results
  double wait_seconds = 0.0;
  ExpertExec::LaneSeconds lane_seconds;  // of the last run
};

// Sizes of tasks, and which of `inputs` the form's gate and up matrices take.
RunForm FormOf(const FormKernels& kernels, std::span<const ExpertKernel> inputs,
               bool (*quantise_alike)(const ExpertKernel&, const ExpertKernel&));

// One call of Run(): what the threads share. Everything here outlives the parallel part.
class LayerRun {
 public:
  struct Leases {
    LeaseStream& now;    // one lease for each expert of the plan but those that devices have
    LeaseStream* ahead;  // the next layer's, taken once all of this layer's are; may be null
  };
  LayerRun(ExpertScratch& scratch, const LayerPlan& plan, const ExpertRows& rows, Leases leases);

  void Work(int thread, int n_threads);
  std::optional<Error> TakeError() { return std::exchange(error_, std::nullopt); }

 private:
  // Thread 0: reads forward, new leases, landed matrices to the jobs, finished experts let go.
  void Pump();
  void ShowLanded(size_t job);
  void WaitForBytes();
  void CheckForRoom();
  void Fail(Error error);
  void BeginDevices();
  void FinishDevices();
  double seconds() const;
  bool TryTask(int thread);
  bool TryJob(size_t job, int thread);
  void QuantiseInputs(int thread, int n_threads);
  void MultiplyHidden(size_t job, uint32_t block, int thread);
  void QuantiseProduct(size_t job, uint32_t i);
  void MultiplyDown(size_t job, uint32_t block);
  void SumUp(int thread, int n_threads) const;
  void AddBias(size_t matrix, size_t job, uint32_t row, std::span<float> rows) const;
  const std::byte* Following(size_t job, size_t matrix, uint32_t row, uint32_t block_rows,
                             uint32_t all_rows) const;
  std::byte* input_of(uint32_t input, uint32_t row) const;

  ExpertScratch& s_;
  const LayerPlan& plan_;
  const LayerForm& layer_;
  const ExpertRows& rows_;
  LeaseStream& leases_;
  LeaseStream* ahead_;
  DeviceSet* devices_;  // null: nothing of the plan is for them
  size_t n_host_ = 0;   // experts of the plan that the CPU computes, its first ones
  std::chrono::steady_clock::time_point begun_;
  std::vector<bool> is_input_used_;  // [input]
  std::atomic<int> inputs_ready_{0};
  std::atomic<size_t> first_open_{0};  // all jobs before it are done
  std::atomic<bool> stop_{false};
  std::atomic<bool> devices_done_{true};
  std::optional<Error> error_;
  size_t first_held_ = 0;     // thread 0: all leases before it are let go
  uint32_t idle_rounds_ = 0;  // thread 0
};

}  // namespace moestro
