// SPDX-License-Identifier: MIT
// One layer of experts on the compute team: the state that the threads share, and the division of
// the work. Used by expert_exec.cc alone.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/wait_word.h"
#include "compute/host_memory.h"
#include "compute/team.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/machine.h"
#include "forward/experts/expert_exec.h"
#include "residency/leases.h"
#include "residency/residency.h"

namespace moestro {

// The rows of a matrix, divided among the threads of a team. Each thread takes its own share from
// the first row to the last, one block at a time, so that the thread reads one stream of memory. A
// thread that has finished takes blocks of other threads' shares.
//
// Memory order: claims are relaxed, since they pass no data on (tests/memory_order/claims.litmus).
// Thread rule: Reset() before the team begins; the rest from all threads of the team.

struct RowBlock {
  uint32_t begin = 0;
  uint32_t count = 0;
  uint32_t end() const { return begin + count; }
};

class RowShare {
 public:
  void Reset(uint32_t begin, uint32_t end) {
    next_.store(begin, std::memory_order_relaxed);
    begin_ = begin;
    end_ = end;
  }
  // The next rows, at most `most` of them; no other thread gets them.
  std::optional<RowBlock> Claim(uint32_t most) {
    if (next_.load(std::memory_order_relaxed) >= end_) return std::nullopt;
    const uint32_t begin = next_.fetch_add(most, std::memory_order_relaxed);
    if (begin >= end_) return std::nullopt;
    return RowBlock{.begin = begin, .count = std::min(most, end_ - begin)};
  }
  uint32_t end() const { return end_; }
  bool has_begun() const { return next_.load(std::memory_order_relaxed) != begin_; }

 private:
  std::atomic<uint32_t> next_{0};
  uint32_t begin_ = 0;
  uint32_t end_ = 0;
};

// Counts the work that all threads together have done.
//
// Memory order: each piece releases, is_done() acquires all: the next stage reads all threads'
// results (tests/memory_order/stages.litmus), and a slot may be reused (slot_reuse.litmus).
class RowProgress {
 public:
  void Reset(uint32_t all) {
    done_.store(0, std::memory_order_relaxed);
    all_ = all;
  }
  bool is_done() const { return done_.load(std::memory_order_acquire) == all_; }
  // True: all of the work is done with this call, which acquires nothing.
  bool Finish(uint32_t count) {
    return done_.fetch_add(count, std::memory_order_release) + count == all_;
  }

 private:
  std::atomic<uint32_t> done_{0};
  uint32_t all_ = 0;
};

inline constexpr size_t kMatrixGate = static_cast<size_t>(Matrix::kGate);
inline constexpr size_t kMatrixUp = static_cast<size_t>(Matrix::kUp);
inline constexpr size_t kMatrixDown = static_cast<size_t>(Matrix::kDown);

// Sizes for a form's experts beside their kernels.
struct RunForm {
  const FormKernels* kernels = nullptr;
  uint32_t hidden_rows = 0;         // weight rows of gate and of up in a block
  uint32_t down_rows = 0;           // weight rows of down in a block
  std::array<uint32_t, 2> input{};  // the quantised inputs of gate and up
};

// One expert's progress through a layer. Values that threads read are apart from counters, and no
// two experts share a cache line.
struct alignas(64) JobState {
  const RunForm* form = nullptr;
  std::array<std::byte*, kMatrices> matrix{};  // written before the bit in landed is set
  bool is_interleaved = false;                 // written before the first bit is set
  // ^Written before the first bit is set; true: threads interleave the rows that they multiply.
  bool is_to_interleave = false;
  std::atomic<uint8_t> landed{0};  // bit per matrix (tests/memory_order/landed.litmus)
  bool let_go = false;             // thread 0 only

  alignas(64) RowProgress hidden;      // rows: gate and up -> activation(gate, up)
  RowProgress quantise;                // pairs: the products, for the down matrix
  RowProgress down;                    // rows
  std::atomic<uint32_t> next_pair{0};  // the next pair to quantise; relaxed, as RowShare's claims

  bool has(size_t m) const { return (landed.load(std::memory_order_acquire) >> m & 1U) != 0; }
};

// A thread's share of the rows of an expert's matrices.
struct alignas(64) JobShare {
  RowShare hidden;
  RowShare down;
};

// Buffers that all layers share.
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
  std::vector<bool> is_input_used;             // [input]: by an expert of the layer
  double wait_seconds = 0.0;
  LaneSeconds lane_seconds;  // times of the last run
};

// The sizes of blocks, and the `inputs` of the form's gate and up matrices.
RunForm FormOf(const FormKernels& kernels, std::span<const ExpertKernel> inputs,
               bool (*quantise_alike)(const ExpertKernel&, const ExpertKernel&));

// The state of one call of Run(), shared by the threads, which outlives the parallel part.
//
// Memory order of its members: tests/memory_order/layer_end.litmus, changes.litmus, stop.litmus.
class LayerRun {
 public:
  struct Leases {
    LeaseStream& now;    // one lease for each expert of the plan that is not in a device slot
    LeaseStream* ahead;  // the next layer's leases, taken after all of this layer's; may be null
  };
  LayerRun(ExpertScratch& scratch, const LayerPlan& plan, const ExpertRows& rows, Leases leases);

  // Throws the exceptions of the work; no other thread then waits for this thread.
  void Work(int thread, int n_threads);
  // Call when no thread works any more. Releases the leases in the plan's order. A failed run may
  // have interleaved some rows of an expert; then the other rows are interleaved too.
  void Close();
  std::optional<Error> TakeError() { return std::exchange(error_, std::nullopt); }
  bool is_asked_to_stop() const {
    return s_.parts.stop != nullptr && s_.parts.stop->is_requested();
  }

 private:
  void WorkOn(int thread, int n_threads);
  void RunTasks(int thread);
  void GiveUp(int thread, int n_threads);
  // For thread 0: advances reads, takes new leases, shows landed matrices to the jobs, releases
  // finished experts.
  void Pump();
  void TakeLeases();
  void LetGoOfDone();
  void MoveLeases();
  void LetGo(size_t job);
  void ChooseLayout(size_t job);
  void ShowLanded(size_t job);
  void WaitForBytes();
  void CheckForRoom();
  void Fail(Error error);
  void End();
  bool is_stopped() const { return stop_.load(std::memory_order_relaxed); }
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
  size_t FirstMatrix(size_t job) const;

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
  DeviceList* devices_;            // null: no expert of the plan is for devices
  size_t n_host_ = 0;              // experts of the plan that the CPU computes: the first ones
  std::vector<bool> stays_there_;  // [pair]: the first device keeps the result; empty: of none
  std::chrono::steady_clock::time_point begun_;
  // True if all experts were resident when the layer began, and rows are few. Every thread then
  // computes all its rows of gate and up, and then all its rows of down, at the speed of memory.
  // Else experts are computed one after the other, so that their slots become free.
  bool by_stage_ = false;
  WaitWord inputs_ready_;
  std::atomic<size_t> first_open_{0};  // all earlier jobs are done; passes their results on
  WaitWord changes_;                   // counts events that threads without a task wait for
  std::atomic<bool> stop_{false};      // relaxed: passes no data on, and changes_ wakes sleepers
  WaitWord devices_done_{1};
  std::optional<Error> error_;
  size_t first_held_ = 0;     // thread 0: all earlier leases are released
  uint32_t idle_rounds_ = 0;  // thread 0
};

}  // namespace moestro
