// SPDX-License-Identifier: MIT
// The order of work in a layer: threads choose among the tasks of the layer's experts. Between its
// tasks thread 0 advances the reads and the devices. The arithmetic is in layer_stages.cc.
#include "forward/experts/layer_run.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <ranges>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/result.h"
#include "base/wait_word.h"
#include "compute/expert_kernel.h"
#include "devices/device_list.h"

namespace moestro {
namespace {

// A block of weight rows is about this many bytes: long enough that claiming it takes almost no
// time, short enough that two cores finish together and reads advance every ten microseconds.
constexpr size_t kBlockBytes = 256 * kKiB;
// With more rows a step is bound by arithmetic. The order of the weights' reads then has no effect,
// and experts that are done early give their slots to others.
constexpr uint32_t kFewRows = 16;

uint32_t RowsPerBlock(size_t row_bytes, uint32_t rows) {
  const auto wanted = static_cast<uint32_t>(kBlockBytes / std::max<size_t>(row_bytes, 1));
  const uint32_t whole = std::max(kTileRows, wanted / kTileRows * kTileRows);
  return std::min(whole, rows);
}

bool is_host(const PlannedExpert& expert) { return expert.place == Place::kHost; }

// [pair]: the first device computes the result.
std::vector<bool> PairsOfFirst(const LayerPlan& plan) {
  std::vector<bool> pairs(plan.row_of.size());
  for (const PlannedExpert& expert : plan.experts) {
    if (is_host(expert) || expert.device != 0) continue;
    std::fill_n(pairs.begin() + expert.first_pair, expert.n_pairs, true);
  }
  return pairs;
}

}  // namespace

RunForm FormOf(const FormKernels& kernels, std::span<const ExpertKernel> inputs,
               bool (*quantise_alike)(const ExpertKernel&, const ExpertKernel&)) {
  RunForm form{.kernels = &kernels};
  form.hidden_rows =
      RowsPerBlock(kernels.row_bytes[kMatrixGate] + kernels.row_bytes[kMatrixUp], kernels.n_ff);
  form.down_rows = RowsPerBlock(kernels.row_bytes[kMatrixDown], kernels.n_embd);
  const auto input_of = [&](Matrix m) {
    const ExpertKernel& kernel = kernels.kernel[static_cast<size_t>(m)];
    const auto found = std::ranges::find_if(
        inputs, [&](const ExpertKernel& k) { return quantise_alike(k, kernel); });
    return static_cast<uint32_t>(found - inputs.begin());
  };
  form.input = {input_of(kernels.first()), input_of(Matrix::kUp)};
  return form;
}

LayerRun::LayerRun(ExpertScratch& scratch, const LayerPlan& plan, const ExpertRows& rows,
                   Leases leases)
    : s_(scratch),
      plan_(plan),
      layer_(scratch.parts.layers[plan.layer.value]),
      rows_(rows),
      leases_(leases.now),
      ahead_(leases.ahead),
      devices_(std::ranges::all_of(plan.experts, is_host) ? nullptr : scratch.parts.devices),
      n_host_(static_cast<size_t>(std::ranges::count_if(plan.experts, is_host))),
      stays_there_(rows.there != nullptr ? PairsOfFirst(plan) : std::vector<bool>()),
      begun_(std::chrono::steady_clock::now()) {
  CHECK(plan.experts.size() <= s_.jobs.size() && leases_.size() <= plan.experts.size());
  CHECK(plan.n_rows <= s_.limits.rows);
  CHECK(n_host_ == plan.experts.size() || devices_ != nullptr);
  s_.is_input_used.assign(s_.input_kernels.size(), false);
  // Stage: reset the jobs, one per expert; the first n_host_ experts are the CPU's.
  for (size_t j = 0; j < leases_.size(); ++j) s_.jobs[j].let_go = false;
  for (size_t j = 0; j < n_host_; ++j) ResetJob(j);
  BeginDevices();
  // A device that fails here ends the layer. Later devices have then not begun, so Pump() must not
  // run.
  if (!is_stopped()) Pump();
  const auto is_there = [this](size_t j) { return leases_.lease(j)->is_complete(); };
  by_stage_ = plan.n_rows <= kFewRows && leases_.all_taken() && leases_.size() == n_host_ &&
              std::ranges::all_of(std::views::iota(size_t{0}, n_host_), is_there);
}

void LayerRun::ResetJob(size_t j) {
  JobState& job = s_.jobs[j];
  job.form = &s_.forms[s_.parts.catalog.copy(plan_.experts[j].key).form];
  const FormKernels& f = *job.form->kernels;
  job.hidden.Reset(f.n_ff);
  job.quantise.Reset(plan_.experts[j].n_pairs);
  job.down.Reset(f.n_embd);
  job.next_pair.store(0, std::memory_order_relaxed);
  job.landed.store(0, std::memory_order_relaxed);
  job.is_interleaved = job.is_to_interleave = false;
  const uint32_t threads = s_.parts.team.threads();
  for (uint32_t t = 0; t < threads; ++t) {
    JobShare& its = share(j, static_cast<int>(t));
    its.hidden.Reset(ShareBegin(f.n_ff, t, threads), ShareBegin(f.n_ff, t + 1, threads));
    its.down.Reset(ShareBegin(f.n_embd, t, threads), ShareBegin(f.n_embd, t + 1, threads));
  }
  for (const uint32_t input : job.form->input) s_.is_input_used[input] = true;
}

JobShare& LayerRun::share(size_t j, int thread) const {
  return s_.shares[j * s_.parts.team.threads() + static_cast<size_t>(thread)];
}

// Launches experts in device slots before the CPU begins, so that CPU and devices compute at the
// same time.
void LayerRun::BeginDevices() {
  s_.lane_seconds = {};
  if (devices_ == nullptr) return;
  devices_done_.Store(0);
  const Status begun =
      devices_->Begin(plan_, {.ffn_in = rows_.ffn_in, .there = rows_.there}, s_.results);
  s_.lane_seconds.beginning = seconds();
  if (!begun) Fail(begun.error());
}

double LayerRun::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
}

std::byte* LayerRun::input_of(uint32_t input, uint32_t row) const {
  return s_.input + (size_t{input} * s_.limits.rows + row) * s_.limits.activation_bytes_embd;
}

void LayerRun::Work(int thread, int n_threads) {
  try {
    WorkOn(thread, n_threads);
  } catch (...) {
    GiveUp(thread, n_threads);
    throw;
  }
}

void LayerRun::GiveUp(int thread, int n_threads) {
  End();
  inputs_ready_.Add(static_cast<uint32_t>(n_threads));
  if (thread != 0) return;
  if (devices_ != nullptr) devices_->Abandon();
  devices_done_.Store(1);
}

void LayerRun::WorkOn(int thread, int n_threads) {
  // Stage: quantise x [rows][n_embd], some rows per thread. All rows are quantised before a thread
  // multiplies.
  QuantiseInputs(thread, n_threads);
  inputs_ready_.Add(1);
  inputs_ready_.WaitUntil(
      [n = static_cast<uint32_t>(n_threads)](uint32_t ready) { return ready >= n; });
  // Stage: experts in the order of their bytes: x [rows][n_embd] -> results [pair][n_embd].
  RunTasks(thread);
  if (thread == 0) FinishDevices();  // Stage: results of devices [pair][n_embd].
  devices_done_.WaitUntil([](uint32_t done) { return done != 0; });
  // Stage: results [pair][n_embd] -> hidden [rows][n_embd], summed in router order.
  if (!ShallEnd() && rows_.hidden != nullptr) SumUp(thread, n_threads);
}

void LayerRun::RunTasks(int thread) {
  const ScopedTeamTime timed(&s_.parts.team.time(), thread);
  Spinner idle;
  while (!ShallEnd()) {
    if (thread == 0) Pump();
    // Read before the tasks are tried, so that a later change ends the wait below.
    const uint32_t seen = changes_.load();
    if (TryTask(thread)) {
      idle.Reset();
      continue;
    }
    if (first_open_.load(std::memory_order_acquire) == n_host_) break;
    if (thread == 0 && MayWaitForBytes()) {
      WaitForBytes();
    } else if (!idle.Spin() && !is_stopped()) {
      changes_.Sleep(seen);
    }
  }
}

// Checked by each thread before each task. The first that finds a stop request wakes sleepers.
bool LayerRun::ShallEnd() {
  if (is_stopped()) return true;
  if (!is_asked_to_stop()) return false;
  End();
  return true;
}

void LayerRun::End() {
  stop_.store(true, std::memory_order_relaxed);
  Announce();
}

// Wakes threads that wait for a change.
void LayerRun::Announce() { changes_.Add(1); }

void LayerRun::Pump() {
  TakeLeases();
  // Stage: advance the reads.
  s_.parts.residency.Pump();
  if (auto error = s_.parts.residency.TakeError()) return Fail(*std::move(error));
  // Stage: release finished experts, show landed matrices to the jobs.
  if (!by_stage_) {
    LetGoOfDone();
    MoveLeases();
  }
  // Stage: launch copied experts.
  if (devices_ == nullptr || devices_done_.load() != 0) return;
  if (auto advanced = devices_->Advance(); !advanced) Fail(std::move(advanced).error());
}

// Stage: leases for free slots, this layer's first, then the next layer's.
void LayerRun::TakeLeases() {
  if (!leases_.all_taken()) leases_.Advance();
  if (ahead_ != nullptr && leases_.all_taken() && !ahead_->all_taken()) ahead_->Advance();
}

// Releases the CPU's experts in the plan's order, and offers the free slot after each. The experts
// that leave memory then follow from the plan, not from the speed of threads, and the simulator can
// predict them.
void LayerRun::LetGoOfDone() {
  for (; first_held_ < leases_.size(); ++first_held_) {
    if (s_.jobs[first_held_].let_go) continue;
    if (first_held_ >= n_host_ || !s_.jobs[first_held_].down.is_done()) return;
    LetGo(first_held_);
    TakeLeases();
  }
}

// Shows landed matrices to the team, and releases experts that have been copied to devices.
void LayerRun::MoveLeases() {
  for (size_t j = first_held_; j < leases_.size(); ++j) {
    if (s_.jobs[j].let_go) continue;
    if (leases_.lease(j) == nullptr) break;  // leases are taken in order
    if (j < n_host_) {
      ShowLanded(j);
    } else if (devices_->Bring(j, *leases_.lease(j))) {
      LetGo(j);
      TakeLeases();
    }
  }
}

void LayerRun::Fail(Error error) {
  if (!error_) error_ = std::move(error);
  End();
}

// Brings copies and launches to their end, when thread 0 has no task left.
void LayerRun::FinishDevices() {
  if (n_host_ > 0) s_.lane_seconds.host = seconds();
  if (devices_ == nullptr) return;
  // Stage: the last copies and launches.
  while (!ShallEnd() && !devices_->all_launched()) {
    WaitForBytes();
    Pump();
  }
  // Stage: the results of each device, [its pairs][n_embd].
  for (uint32_t d = 0; d < devices_->size() && !is_stopped(); ++d) {
    const double begun = seconds();
    if (auto finished = devices_->Finish(d); !finished) Fail(std::move(finished).error());
    const double done = devices_->has_waited(d) ? seconds() : 0.0;
    s_.lane_seconds.devices.push_back({.done = done, .collecting = std::max(done - begun, 0.0)});
  }
  if (is_stopped()) devices_->Abandon();
  devices_done_.Store(1);
}

// Shows the other threads which matrices have landed. Writes on a change only, because the other
// threads read this cache line before every task.
void LayerRun::ShowLanded(size_t j) {
  JobState& job = s_.jobs[j];
  const Lease& lease = *leases_.lease(j);
  for (size_t m = 0; m < kMatrices; ++m) {
    const auto matrix = static_cast<Matrix>(m);
    if (job.has(m) || !lease.landed(matrix)) continue;
    if (job.landed.load(std::memory_order_relaxed) == 0) ChooseLayout(j);
    job.matrix[m] = lease.matrix(matrix);
    job.landed.fetch_or(static_cast<uint8_t>(1U << m), std::memory_order_release);
    Announce();
  }
}

// Checks that a slot can become free, when thread 0 has no task. If no read is under way and no
// lease is held, no thread can free a slot for the next lease.
void LayerRun::CheckForRoom() {
  const size_t taken = leases_.taken();
  if (leases_.all_taken() || first_held_ < taken || !s_.parts.residency.idle()) return;
  leases_.Advance();  // a slot may have become free since Pump()
  CHECK(leases_.taken() > taken && "no slot for an expert: leases outside this layer hold them");
}

// Whether reads or devices must advance while thread 0 has no task; else thread 0 sleeps until a
// change, as the other threads do.
bool LayerRun::MayWaitForBytes() const {
  return devices_ != nullptr || !leases_.all_taken() || !s_.parts.residency.idle();
}

// Waits a moment. Spinning answers a completed read within a microsecond; after a while the thread
// sleeps in the kernel, so that a slow disk does not keep a core busy.
void LayerRun::WaitForBytes() {
  CheckForRoom();
  constexpr uint32_t kSpins = 2000;
  const auto start = std::chrono::steady_clock::now();
  if (++idle_rounds_ < kSpins) {
    for (int i = 0; i < 16; ++i) CpuRelax();
  } else {
    idle_rounds_ = 0;
    s_.parts.residency.WaitBriefly();  // the caller then checks for tasks again
  }
  s_.wait_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool LayerRun::TryTask(int thread) {
  size_t first = first_open_.load(std::memory_order_acquire);
  while (first < n_host_ && s_.jobs[first].down.is_done()) {
    // If the exchange fails, another thread has already advanced the mark.
    if (first_open_.compare_exchange_strong(first, first + 1, std::memory_order_acq_rel)) ++first;
  }
  if (by_stage_) return TryStages(thread);
  for (size_t j = first; j < n_host_; ++j) {
    if (TryJob(j, thread)) return true;
  }
  return false;
}

// Tries a thread's own rows of all experts, then the remaining rows of other threads.
bool LayerRun::TryStages(int thread) {
  const auto any = [this](auto&& attempt) {
    return std::ranges::any_of(std::views::iota(size_t{0}, n_host_), attempt);
  };
  return any([&](size_t j) { return TryHidden(j, thread, thread); }) ||
         any([&](size_t j) { return TryQuantise(j); }) ||
         any([&](size_t j) { return TryDown(j, thread, thread); }) ||
         any([&](size_t j) { return Help(&LayerRun::TryHidden, j, thread); }) ||
         any([&](size_t j) { return Help(&LayerRun::TryDown, j, thread); });
}

// Tries the next task of one expert, if its bytes have landed and the stage before it is done.
bool LayerRun::TryJob(size_t j, int thread) {
  return TryHidden(j, thread, thread) || Help(&LayerRun::TryHidden, j, thread) || TryQuantise(j) ||
         TryDown(j, thread, thread) || Help(&LayerRun::TryDown, j, thread);
}

// The number of weight rows that a thread takes at a time. By stage no thread waits for reads, so
// long blocks keep a share's stream of memory unbroken. Short blocks of the last expert are enough
// for threads to end together.
uint32_t LayerRun::BlockRows(size_t j, uint32_t rows, bool is_own) const {
  constexpr uint32_t kLongBlock = 4;
  return by_stage_ && is_own && j + 1 < n_host_ ? rows * kLongBlock : rows;
}

// Stage: gate and up rows, once both matrices have landed: x [pairs][n_embd] -> products
// [pairs][n_ff].
bool LayerRun::TryHidden(size_t j, int owner, int thread) {
  JobState& job = s_.jobs[j];
  if (!job.has(kMatrixGate) || !job.has(kMatrixUp)) return false;
  const auto block =
      share(j, owner).hidden.Claim(BlockRows(j, job.form->hidden_rows, owner == thread));
  if (!block) return false;
  MultiplyHidden(j, *block, thread, AfterHidden(j, owner, block->end()));
  if (job.hidden.Finish(block->count)) Announce();
  return true;
}

// Stage: one pair's product [n_ff], once all products are computed -> the quantised input of down.
bool LayerRun::TryQuantise(size_t j) {
  JobState& job = s_.jobs[j];
  const uint32_t pairs = plan_.experts[j].n_pairs;
  if (job.next_pair.load(std::memory_order_relaxed) >= pairs || !job.hidden.is_done()) return false;
  const uint32_t pair = job.next_pair.fetch_add(1, std::memory_order_relaxed);
  if (pair >= pairs) return false;
  QuantiseProduct(j, pair);
  if (job.quantise.Finish(1)) Announce();
  return true;
}

// Stage: down rows, once every product is quantised: [pairs][n_ff] -> results [pairs][n_embd].
bool LayerRun::TryDown(size_t j, int owner, int thread) {
  JobState& job = s_.jobs[j];
  if (!job.has(kMatrixDown) || !job.quantise.is_done()) return false;
  const auto block = share(j, owner).down.Claim(BlockRows(j, job.form->down_rows, owner == thread));
  if (!block) return false;
  MultiplyDown(j, *block, thread, owner == thread ? AfterDown(j, owner, block->end()) : nullptr);
  if (job.down.Finish(block->count)) Announce();
  return true;
}

// Tries `attempt` for the rows of each other thread.
bool LayerRun::Help(Attempt attempt, size_t j, int thread) {
  const int threads = static_cast<int>(s_.parts.team.threads());
  for (int t = 1; t < threads; ++t) {
    if ((this->*attempt)(j, (thread + t) % threads, thread)) return true;
  }
  return false;
}

size_t LayerRun::FirstMatrix(size_t j) const {
  return static_cast<size_t>(s_.jobs[j].form->kernels->first());
}

// A weight row of matrix m. nullptr: the matrix has not landed.
const std::byte* LayerRun::RowOf(size_t j, size_t m, uint32_t row) const {
  const JobState& job = s_.jobs[j];
  return job.has(m) ? job.matrix[m] + row * job.form->kernels->row_bytes[m] : nullptr;
}

// The bytes that the owner reads after its gate and up rows before `row`: the next rows, or the
// first row of its next share. nullptr: not known.
const std::byte* LayerRun::AfterHidden(size_t j, int owner, uint32_t row) const {
  if (row < share(j, owner).hidden.end()) return RowOf(j, FirstMatrix(j), row);
  const auto thread = static_cast<uint32_t>(owner);
  const uint32_t threads = s_.parts.team.threads();
  if (by_stage_ && j + 1 < n_host_) {
    const uint32_t n_ff = s_.jobs[j + 1].form->kernels->n_ff;
    return RowOf(j + 1, FirstMatrix(j + 1), ShareBegin(n_ff, thread, threads));
  }
  const size_t next = by_stage_ ? 0 : j;
  const uint32_t n_embd = s_.jobs[next].form->kernels->n_embd;
  return RowOf(next, kMatrixDown, ShareBegin(n_embd, thread, threads));
}

// The bytes that the owner reads after its down rows before `row`: the next rows, or the first row
// of its next share. nullptr: not known.
const std::byte* LayerRun::AfterDown(size_t j, int owner, uint32_t row) const {
  if (row < share(j, owner).down.end()) return RowOf(j, kMatrixDown, row);
  if (j + 1 == n_host_) return nullptr;
  const auto thread = static_cast<uint32_t>(owner);
  const FormKernels& f = *s_.jobs[j + 1].form->kernels;
  const size_t m = by_stage_ ? kMatrixDown : FirstMatrix(j + 1);
  return RowOf(j + 1, m,
               ShareBegin(by_stage_ ? f.n_embd : f.n_ff, thread, s_.parts.team.threads()));
}

static_assert(kTileRows % ExpertKernel::kInterleavedRows == 0, "blocks are split there");

// Chooses the layout of an expert in its slot. An expert from the disk is first multiplied in the
// layout of the file. At its second use it is likely to stay, so the thread that multiplies a block
// of its rows interleaves them first (ExpertKernel::interleave), and the lease notes this. If every
// expert has a slot, a preloaded expert is interleaved at its first use.
//
// Called by thread 0 before the first matrix of the job is shown to the other threads.
void LayerRun::ChooseLayout(size_t j) {
  const Lease& lease = *leases_.lease(j);
  const Lease::Notes notes = lease.notes();
  const InterleaveWhen when = s_.parts.interleave;
  // An incomplete expert is not interleaved: a read may go on after this layer has failed.
  const bool pays = notes.was_used || (when == InterleaveWhen::kThere && lease.is_complete());
  JobState& job = s_.jobs[j];
  job.is_interleaved = notes.is_interleaved;
  job.is_to_interleave = when != InterleaveWhen::kNever && pays && !notes.is_interleaved;
}

bool LayerRun::is_interleaved(size_t j, size_t m) const {
  const JobState& job = s_.jobs[j];
  return (job.is_interleaved || job.is_to_interleave) &&
         job.form->kernels->kernel[m].interleave != nullptr;
}

// Interleaves a block of rows if the job is_to_interleave; the rows are in the cache afterwards.
void LayerRun::Interleave(size_t j, size_t m, RowBlock block, int thread) {
  if (!s_.jobs[j].is_to_interleave || !is_interleaved(j, m)) return;
  const FormKernels& f = *s_.jobs[j].form->kernels;
  f.kernel[m].interleave({.rows = s_.jobs[j].matrix[m] + block.begin * f.row_bytes[m],
                          .row_bytes = f.row_bytes[m],
                          .n_rows = block.count},
                         s_.groups[static_cast<size_t>(thread)].data());
}

bool LayerRun::HasBegun(size_t j) const {
  for (uint32_t t = 0; t < s_.parts.team.threads(); ++t) {
    const JobShare& its = share(j, static_cast<int>(t));
    if (its.hidden.has_begun() || its.down.has_begun()) return true;
  }
  return false;
}

// Interleaves the rows of an expert that a failed run has left.
void LayerRun::InterleaveRest(size_t j) {
  const JobState& job = s_.jobs[j];
  for (uint32_t t = 0; t < s_.parts.team.threads(); ++t) {
    JobShare& its = share(j, static_cast<int>(t));
    while (const auto block = its.hidden.Claim(job.form->hidden_rows)) {
      Interleave(j, kMatrixGate, *block, 0);
      Interleave(j, kMatrixUp, *block, 0);
    }
    while (const auto block = its.down.Claim(job.form->down_rows)) {
      Interleave(j, kMatrixDown, *block, 0);
    }
  }
}

void LayerRun::LetGo(size_t j) {
  JobState& job = s_.jobs[j];
  // The notes of an expert stay if not all of its matrices were shown.
  if (j < n_host_ && job.has(kMatrixGate) && job.has(kMatrixUp) && job.has(kMatrixDown)) {
    leases_.lease(j)->SetNotes(
        {.was_used = true, .is_interleaved = job.is_interleaved || job.is_to_interleave});
  }
  job.let_go = true;
  leases_.LetGo(j);
}

void LayerRun::Close() {
  for (size_t j = 0; j < n_host_; ++j) {
    if (leases_.lease(j) == nullptr) continue;
    if (s_.jobs[j].is_to_interleave && HasBegun(j)) {
      InterleaveRest(j);
    } else {
      s_.jobs[j].is_to_interleave = false;  // no row of the expert was computed
    }
    LetGo(j);
    if (!is_stopped()) TakeLeases();
  }
}

}  // namespace moestro
