// SPDX-License-Identifier: MIT
// One layer of experts on the compute team: what its threads share and how they divide the work.
// Used by expert_exec.cc alone.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "device/host_memory.h"
#include "device/team.h"
#include "forward/experts/expert_exec.h"
#include "forward/experts/row_shares.h"
#include "residency/lease_stream.h"
#include "residency/residency.h"

namespace moestro {

inline constexpr size_t kMatrixGate = static_cast<size_t>(Matrix::kGate);
inline constexpr size_t kMatrixUp = static_cast<size_t>(Matrix::kUp);
inline constexpr size_t kMatrixDown = static_cast<size_t>(Matrix::kDown);

// What a form's experts need beyond their kernels.
struct RunForm {
  const FormKernels* kernels = nullptr;
  uint32_t hidden_rows = 0;         // weight rows of gate and of up in a block
  uint32_t down_rows = 0;           // weight rows of down in a block
  std::array<uint32_t, 2> input{};  // which quantised input gate and up take
};

// One expert's progress through a layer. What threads look at lies apart from what they count, and
// no two experts share a cache line.
struct alignas(64) JobState {
  const RunForm* form = nullptr;
  std::array<std::byte*, kMatrices> matrix{};  // written before the bit in landed is set
  bool is_interleaved = false;                 // written before the first bit is
  bool is_to_interleave = false;               // the same: by the thread that multiplies the rows
  std::atomic<uint8_t> landed{0};              // bit per matrix
  bool let_go = false;                         // thread 0 only

  alignas(64) Progress hidden;         // rows: gate and up -> activation(gate, up)
  Progress quantise;                   // pairs: the products, for the down matrix
  Progress down;                       // rows
  std::atomic<uint32_t> next_pair{0};  // to be quantised

  bool has(size_t m) const { return (landed.load(std::memory_order_acquire) >> m & 1U) != 0; }
};

// A thread's rows of an expert's matrices.
struct alignas(64) JobShare {
  RowShare hidden;
  RowShare down;
};

// Buffers that every layer uses again.
struct ExpertScratch {
  ExpertScratch(const ExpertExec::Parts& p, const ExpertExec::Limits& l)
      : parts(p),
        limits(l),
        jobs(l.n_expert),
        shares(size_t{l.n_expert} * p.team.threads()),
        up_rows(p.team.threads()) {}

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
  std::vector<JobShare> shares;                // [job][thread]
  std::vector<std::vector<float>> up_rows;     // [thread]: one block of the up matrix's results
  std::vector<std::vector<std::byte>> groups;  // [thread]: kInterleavedRows of the widest rows
  double wait_seconds = 0.0;
  ExpertExec::LaneSeconds lane_seconds;  // of the last run
};

// Sizes of blocks, and which of `inputs` the form's gate and up matrices take.
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

  // Throws what its work throws, and then no other thread waits for this one.
  void Work(int thread, int n_threads);
  // When no thread works any more: lets the leases go. A run that failed may have interleaved some
  // rows of an expert: the others follow.
  void Close();
  std::optional<Error> TakeError() { return std::exchange(error_, std::nullopt); }
  // Any thread. Once true it stays so.
  bool is_asked_to_stop() const {
    return s_.parts.stop != nullptr && s_.parts.stop->is_requested();
  }

 private:
  void WorkOn(int thread, int n_threads);
  void GiveUp(int thread, int n_threads);
  // Thread 0: reads forward, new leases, landed matrices to the jobs, finished experts let go.
  void Pump();
  void MoveLeases();
  void LetGo(size_t job);
  void ChooseLayout(size_t job);
  void ShowLanded(size_t job);
  void WaitForBytes();
  void CheckForRoom();
  void Fail(Error error);
  void End();
  bool ShallEnd();
  void BeginDevices();
  void FinishDevices();
  double seconds() const;
  void ResetJob(size_t job);
  void Announce();
  bool MayWaitForBytes() const;
  // Threads choose among tasks: blocks of rows, and rows to be quantised.
  bool TryTask(int thread);
  bool TryStages(int thread);
  bool TryJob(size_t job, int thread);
  bool TryHidden(size_t job, int owner, int thread);
  bool TryQuantise(size_t job);
  bool TryDown(size_t job, int owner, int thread);
  using Attempt = bool (LayerRun::*)(size_t job, int owner, int thread);
  bool Help(Attempt attempt, size_t job, int thread);
  JobShare& share(size_t job, int thread) const;
  uint32_t BlockRows(size_t job, uint32_t rows, bool is_own) const;
  const std::byte* AfterHidden(size_t job, int owner, uint32_t row) const;
  const std::byte* AfterDown(size_t job, int owner, uint32_t row) const;
  const std::byte* RowOf(size_t job, size_t matrix, uint32_t row) const;

  void QuantiseInputs(int thread, int n_threads);
  void MultiplyHidden(size_t job, RowBlock block, int thread, const std::byte* following);
  void QuantiseProduct(size_t job, uint32_t i);
  void MultiplyDown(size_t job, RowBlock block, int thread, const std::byte* next);
  bool is_interleaved(size_t job, size_t matrix) const;
  void Interleave(size_t job, size_t matrix, RowBlock block, int thread);
  void InterleaveRest(size_t job);
  bool HasBegun(size_t job) const;
  void SumUp(int thread, int n_threads);
  void AddBias(size_t matrix, size_t job, uint32_t row, std::span<float> rows) const;
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
  // All experts were there when the layer began, for few rows: every thread walks through all
  // its rows of gate and up, then through all those of down, as fast as memory gives them. Else
  // the experts are done one after the other, so that their slots become free.
  bool by_stage_ = false;
  std::atomic<int> inputs_ready_{0};
  std::atomic<size_t> first_open_{0};  // all jobs before it are done
  std::atomic<uint32_t> changes_{0};   // counts what threads without a task wait for
  std::atomic<bool> stop_{false};
  std::atomic<bool> devices_done_{true};
  std::optional<Error> error_;
  size_t first_held_ = 0;     // thread 0: all leases before it are let go
  uint32_t idle_rounds_ = 0;  // thread 0
};

}  // namespace moestro
