// SPDX-License-Identifier: MIT
// The stages of an expert, each cut into tasks that any thread may take:
//
//   inputs     x [rows][n_embd]     -> quantised as the gate and up matrices want it
//   hidden     gate, up [n_ff][n_embd] times x   -> silu(gate x) * (up x), [pairs][n_ff]
//   quantise   products [pairs][n_ff]            -> as the down matrix wants them
//   down       down [n_embd][n_ff] times product -> results [pairs][n_embd]
//   sum        results by router order           -> hidden [rows][n_embd]
#include "forward/experts/layer_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "device/activation.h"
#include "device/expert_kernel.h"
#include "forward/experts/device_set.h"
#include "forward/experts/spin.h"

namespace moestro {
namespace {

constexpr size_t kMatrixGate = static_cast<size_t>(Matrix::kGate);
constexpr size_t kMatrixUp = static_cast<size_t>(Matrix::kUp);
constexpr size_t kMatrixDown = static_cast<size_t>(Matrix::kDown);

// A block of weight rows is about this many bytes: long enough that claiming it costs nothing,
// short enough that two cores finish together and reads are moved along every few microseconds.
constexpr size_t kBlockBytes = 96 * kKiB;
constexpr uint32_t kRowMultiple = 16;  // kernels work on tiles of rows

uint32_t RowsPerBlock(size_t row_bytes, uint32_t rows) {
  const auto wanted = static_cast<uint32_t>(kBlockBytes / std::max<size_t>(row_bytes, 1));
  const uint32_t whole = std::max(kRowMultiple, wanted / kRowMultiple * kRowMultiple);
  return std::min(whole, rows);
}

constexpr uint32_t CeilDivide(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

bool is_host(const PlannedExpert& expert) { return expert.place == Place::kHost; }

}  // namespace

RunForm FormOf(const FormKernels& kernels, std::span<const ExpertKernel> inputs,
               bool (*quantise_alike)(const ExpertKernel&, const ExpertKernel&)) {
  RunForm form{.kernels = &kernels};
  form.hidden_rows =
      RowsPerBlock(kernels.row_bytes[kMatrixGate] + kernels.row_bytes[kMatrixUp], kernels.n_ff);
  form.down_rows = RowsPerBlock(kernels.row_bytes[kMatrixDown], kernels.n_embd);
  for (size_t m = kMatrixGate; m <= kMatrixUp; ++m) {
    const auto found = std::ranges::find_if(
        inputs, [&](const ExpertKernel& k) { return quantise_alike(k, kernels.kernel[m]); });
    form.input[m] = static_cast<uint32_t>(found - inputs.begin());
  }
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
      begun_(std::chrono::steady_clock::now()),
      is_input_used_(scratch.input_kernels.size()) {
  CHECK(plan.experts.size() <= s_.jobs.size() && leases_.size() <= plan.experts.size());
  CHECK(plan.n_rows <= s_.limits.rows);
  CHECK(n_host_ == plan.experts.size() || devices_ != nullptr);
  for (size_t j = 0; j < leases_.size(); ++j) s_.jobs[j].let_go = false;
  for (size_t j = 0; j < n_host_; ++j) {
    JobState& job = s_.jobs[j];
    job.form = &s_.forms[s_.parts.catalog.copy(plan.experts[j].key).form];
    job.hidden.Reset(CeilDivide(job.form->kernels->n_ff, job.form->hidden_rows));
    job.quantise.Reset(plan.experts[j].n_pairs);
    job.down.Reset(CeilDivide(job.form->kernels->n_embd, job.form->down_rows));
    job.landed.store(0, std::memory_order_relaxed);
    for (const uint32_t input : job.form->input) is_input_used_[input] = true;
  }
  BeginDevices();
  Pump();
}

// What devices have is launched before the CPU begins: all compute at once.
void LayerRun::BeginDevices() {
  if (devices_ == nullptr) return;
  devices_done_.store(false, std::memory_order_relaxed);
  if (auto begun = devices_->Begin(plan_, rows_, s_.results); !begun) Fail(begun.error());
}

double LayerRun::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
}

std::byte* LayerRun::input_of(uint32_t input, uint32_t row) const {
  return s_.input + (size_t{input} * s_.limits.rows + row) * s_.limits.activation_bytes_embd;
}

void LayerRun::Work(int thread, int n_threads) {
  // x [rows][n_embd] quantised, each thread some rows; nobody multiplies before all are done.
  QuantiseInputs(thread, n_threads);
  SpinUntil([&] { return inputs_ready_.load(std::memory_order_acquire) == n_threads; });
  // Experts in any order, as their bytes come.
  Spinner idle;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (thread == 0) Pump();
    if (TryTask(thread)) {
      idle.Reset();
      continue;
    }
    if (first_open_.load(std::memory_order_acquire) == n_host_) break;
    if (thread == 0) {
      WaitForBytes();
    } else {
      idle.Pause();
    }
  }
  if (thread == 0) FinishDevices();  // their results
  SpinUntil([&] {
    return devices_done_.load(std::memory_order_acquire) || stop_.load(std::memory_order_acquire);
  });
  // All results are there: sum in router order.
  if (!stop_.load(std::memory_order_acquire) && rows_.there == nullptr) SumUp(thread, n_threads);
}

void LayerRun::Pump() {
  // Leases for what has room now: this layer's first, then the next one's.
  if (!leases_.all_taken()) leases_.Advance();
  if (ahead_ != nullptr && leases_.all_taken() && !ahead_->all_taken()) ahead_->Advance();
  s_.parts.residency.Pump();
  if (auto error = s_.parts.residency.TakeError()) return Fail(*std::move(error));
  // Matrices that have landed become visible to the team; experts that are done free their slots.
  while (first_held_ < leases_.size() && s_.jobs[first_held_].let_go) ++first_held_;
  for (size_t j = first_held_; j < leases_.size(); ++j) {
    JobState& job = s_.jobs[j];
    if (job.let_go) continue;
    if (leases_.lease(j) == nullptr) break;  // leases are taken in order
    const bool is_over = j < n_host_ ? job.down.is_done() : devices_->Bring(j, *leases_.lease(j));
    if (is_over) {
      job.let_go = true;
      leases_.LetGo(j);
    } else if (j < n_host_) {
      ShowLanded(j);
    }
  }
  if (devices_ == nullptr || devices_done_.load(std::memory_order_relaxed)) return;
  if (auto advanced = devices_->Advance(); !advanced) Fail(std::move(advanced).error());
}

void LayerRun::Fail(Error error) {
  if (!error_) error_ = std::move(error);
  stop_.store(true, std::memory_order_release);
}

// Thread 0 has nothing left to compute: copies and launches to their end.
void LayerRun::FinishDevices() {
  s_.lane_seconds = {.host = n_host_ > 0 ? seconds() : 0.0};
  if (devices_ == nullptr) return;
  while (!stop_.load(std::memory_order_relaxed) && !devices_->all_launched()) {
    WaitForBytes();
    Pump();
  }
  for (uint32_t d = 0; d < devices_->size() && !stop_.load(std::memory_order_relaxed); ++d) {
    if (auto finished = devices_->Finish(d); !finished) Fail(std::move(finished).error());
    const bool was_waited_for = devices_->works(d) && rows_.there == nullptr;
    s_.lane_seconds.devices.push_back(was_waited_for ? seconds() : 0.0);
  }
  if (stop_.load(std::memory_order_relaxed)) devices_->Abandon();
  devices_done_.store(true, std::memory_order_release);
}

// Tells the other threads which matrices are there. Written on change only: the line is the one
// they claim tasks in.
void LayerRun::ShowLanded(size_t j) {
  JobState& job = s_.jobs[j];
  const Lease& lease = *leases_.lease(j);
  for (size_t m = 0; m < kMatrices; ++m) {
    const auto matrix = static_cast<Matrix>(m);
    if (job.has(m) || !lease.landed(matrix)) continue;
    job.matrix[m] = lease.matrix(matrix);
    job.landed.fetch_or(static_cast<uint8_t>(1U << m), std::memory_order_release);
  }
}

// Thread 0 has nothing to compute. If no read is under way and none of the leases taken so far is
// still held, nobody will ever make room for the next one.
void LayerRun::CheckForRoom() {
  const size_t taken = leases_.taken();
  if (leases_.all_taken() || first_held_ < taken || !s_.parts.residency.idle()) return;
  leases_.Advance();  // something may have become free since Pump() tried
  CHECK(leases_.taken() > taken && "no slot for an expert: leases outside this layer hold them");
}

// Spinning answers a completed read within a microsecond; after a while the reader sleeps in the
// kernel instead, so that a slow disk does not burn a core.
void LayerRun::WaitForBytes() {
  CheckForRoom();
  constexpr uint32_t kSpins = 2000;
  const auto start = std::chrono::steady_clock::now();
  if (++idle_rounds_ < kSpins) {
    for (int i = 0; i < 16; ++i) CpuRelax();
  } else {
    idle_rounds_ = 0;
    s_.parts.residency.Wait();
  }
  s_.wait_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool LayerRun::TryTask(int thread) {
  size_t first = first_open_.load(std::memory_order_acquire);
  while (first < n_host_ && s_.jobs[first].down.is_done()) {
    // Losing this race only means that another thread has moved the mark further.
    if (first_open_.compare_exchange_strong(first, first + 1, std::memory_order_acq_rel)) ++first;
  }
  for (size_t j = first; j < n_host_; ++j) {
    if (TryJob(j, thread)) return true;
  }
  return false;
}

// The next task of one expert, if its bytes are there and the stage before it is done.
bool LayerRun::TryJob(size_t j, int thread) {
  JobState& job = s_.jobs[j];
  // gate and up rows, as soon as both matrices are there
  if (!job.hidden.is_done()) {
    if (!job.has(kMatrixGate) || !job.has(kMatrixUp)) return false;
    const auto block = job.hidden.Claim();
    if (!block) return false;
    MultiplyHidden(j, *block, thread);
    job.hidden.Finish();
    return true;
  }
  // the product of a row, once all of its n_ff values are there
  if (!job.quantise.is_done()) {
    const auto pair = job.quantise.Claim();
    if (!pair) return false;
    QuantiseProduct(j, *pair);
    job.quantise.Finish();
    return true;
  }
  // down rows, once every product is quantised
  if (!job.has(kMatrixDown)) return false;
  const auto block = job.down.Claim();
  if (!block) return false;
  MultiplyDown(j, *block);
  job.down.Finish();
  return true;
}

void LayerRun::QuantiseInputs(int thread, int n_threads) {
  for (uint32_t i = 0; i < is_input_used_.size(); ++i) {
    if (!is_input_used_[i]) continue;
    const ExpertKernel& kernel = s_.input_kernels[i];
    const uint32_t n_embd = s_.limits.n_embd;
    for (auto row = static_cast<uint32_t>(thread); row < plan_.n_rows;
         row += static_cast<uint32_t>(n_threads)) {
      kernel.quantise(kernel, rows_.ffn_in + size_t{row} * n_embd, input_of(i, row), n_embd);
    }
  }
  inputs_ready_.fetch_add(1, std::memory_order_acq_rel);
}

// Rows of an expert are taken in groups that fit arrays on the stack.
constexpr uint32_t kGroup = 64;

// Threads take blocks in turn, so the block this thread gets next is probably one team further.
const std::byte* LayerRun::Following(size_t j, size_t m, uint32_t row, uint32_t block_rows,
                                     uint32_t all_rows) const {
  const uint32_t next = row + block_rows * s_.parts.team.threads();
  const JobState& job = s_.jobs[j];
  return next < all_rows ? job.matrix[m] + next * job.form->kernels->row_bytes[m] : nullptr;
}

// Weight rows [row, row + rows.size()) of a matrix's result for one row of the step.
void LayerRun::AddBias(size_t m, size_t j, uint32_t row, std::span<float> rows) const {
  const float* biases = layer_.bias[m];
  if (biases == nullptr) return;
  const FormKernels& f = *s_.jobs[j].form->kernels;
  const uint32_t width = m == kMatrixDown ? f.n_embd : f.n_ff;
  const float* bias = biases + size_t{plan_.experts[j].key.expert.value} * width + row;
  for (size_t r = 0; r < rows.size(); ++r) rows[r] += bias[r];
}

// Weight rows [row, row + n_rows) of gate and up, for all rows of the step that the expert has.
void LayerRun::MultiplyHidden(size_t j, uint32_t block, int thread) {
  const PlannedExpert& expert = plan_.experts[j];
  const RunForm& form = *s_.jobs[j].form;
  const FormKernels& f = *form.kernels;
  const uint32_t row = block * form.hidden_rows;
  const uint32_t n_rows = std::min(form.hidden_rows, f.n_ff - row);
  std::array<const std::byte*, kGroup> x{};
  std::array<float*, kGroup> out{};
  std::vector<float>& up_rows = s_.up_rows[static_cast<size_t>(thread)];
  if (up_rows.size() < size_t{kGroup} * n_rows) up_rows.resize(size_t{kGroup} * n_rows);
  for (uint32_t first = 0; first < expert.n_pairs; first += kGroup) {
    const uint32_t n = std::min(kGroup, expert.n_pairs - first);
    const auto multiply = [&](size_t m, float* base, size_t stride, const std::byte* next) {
      for (uint32_t i = 0; i < n; ++i) {
        x[i] = input_of(form.input[m], plan_.row_of[expert.first_pair + first + i]);
        out[i] = base + i * stride;
      }
      const ExpertKernel& kernel = f.kernel[m];
      kernel.multiply(kernel, {.rows = s_.jobs[j].matrix[m] + row * f.row_bytes[m],
                               .row_bytes = f.row_bytes[m],
                               .n_in = f.n_embd,
                               .n_rows = n_rows,
                               .activations = x.data(),
                               .out = out.data(),
                               .n_tokens = n,
                               .next = next,
                               .next_bytes = next != nullptr ? f.row_bytes[m] * 16 : 0});
    };
    float* gate = s_.products + size_t{expert.first_pair + first} * f.n_ff + row;
    multiply(kMatrixGate, gate, f.n_ff,
             s_.jobs[j].matrix[kMatrixUp] + row * f.row_bytes[kMatrixUp]);
    multiply(kMatrixUp, up_rows.data(), n_rows,
             Following(j, kMatrixGate, row, form.hidden_rows, f.n_ff));
    for (uint32_t i = 0; i < n; ++i) {
      float* g = gate + size_t{i} * f.n_ff;
      float* u = up_rows.data() + size_t{i} * n_rows;
      AddBias(kMatrixGate, j, row, {g, n_rows});
      AddBias(kMatrixUp, j, row, {u, n_rows});
      Join(layer_.activation, {u, n_rows}, {g, n_rows});
    }
  }
}

void LayerRun::QuantiseProduct(size_t j, uint32_t i) {
  const size_t pair = plan_.experts[j].first_pair + i;
  const FormKernels& f = *s_.jobs[j].form->kernels;
  const ExpertKernel& kernel = f.kernel[kMatrixDown];
  kernel.quantise(kernel, s_.products + pair * f.n_ff,
                  s_.products_q + pair * s_.limits.activation_bytes_ff, f.n_ff);
}

// Weight rows [row, row + n_rows) of down, for all rows of the step that the expert has.
void LayerRun::MultiplyDown(size_t j, uint32_t block) {
  const PlannedExpert& expert = plan_.experts[j];
  const RunForm& form = *s_.jobs[j].form;
  const FormKernels& f = *form.kernels;
  const uint32_t row = block * form.down_rows;
  const uint32_t n_rows = std::min(form.down_rows, f.n_embd - row);
  const ExpertKernel& kernel = f.kernel[kMatrixDown];
  const std::byte* next = Following(j, kMatrixDown, row, form.down_rows, f.n_embd);
  std::array<const std::byte*, kGroup> x{};
  std::array<float*, kGroup> out{};
  for (uint32_t first = 0; first < expert.n_pairs; first += kGroup) {
    const uint32_t n = std::min(kGroup, expert.n_pairs - first);
    for (uint32_t i = 0; i < n; ++i) {
      const size_t pair = expert.first_pair + first + i;
      x[i] = s_.products_q + pair * s_.limits.activation_bytes_ff;
      out[i] = s_.results + pair * f.n_embd + row;
    }
    kernel.multiply(kernel,
                    {.rows = s_.jobs[j].matrix[kMatrixDown] + row * f.row_bytes[kMatrixDown],
                     .row_bytes = f.row_bytes[kMatrixDown],
                     .n_in = f.n_ff,
                     .n_rows = n_rows,
                     .activations = x.data(),
                     .out = out.data(),
                     .n_tokens = n,
                     .next = next,
                     .next_bytes = next != nullptr ? f.row_bytes[kMatrixDown] * 16 : 0});
    for (uint32_t i = 0; i < n; ++i) AddBias(kMatrixDown, j, row, {out[i], n_rows});
  }
}

// hidden [rows][n_embd] = sum over K of weight * result, then shared, then residual. Columns are
// split between threads, not rows: one row is the common case.
void LayerRun::SumUp(int thread, int n_threads) const {
  const uint32_t width = s_.limits.n_embd;
  const uint32_t begin = width * static_cast<uint32_t>(thread) / static_cast<uint32_t>(n_threads);
  const uint32_t end = width * static_cast<uint32_t>(thread + 1) / static_cast<uint32_t>(n_threads);
  for (uint32_t row = 0; row < plan_.n_rows; ++row) {
    float* out = rows_.hidden + size_t{row} * width;
    const float* residual = rows_.residual + size_t{row} * width;
    for (uint32_t c = begin; c < end; ++c) out[c] = 0.0F;
    for (uint32_t k = 0; k < plan_.n_used; ++k) {
      const size_t at = size_t{row} * plan_.n_used + k;
      if (plan_.pair_of[at] == kNoPair) continue;
      const float weight = plan_.weights[at];
      const float* y = s_.results + size_t{plan_.pair_of[at]} * width;
      for (uint32_t c = begin; c < end; ++c) out[c] += weight * y[c];
    }
    if (rows_.shared != nullptr) {
      const float* shared = rows_.shared + size_t{row} * width;
      for (uint32_t c = begin; c < end; ++c) out[c] += shared[c];
    }
    for (uint32_t c = begin; c < end; ++c) out[c] += residual[c];
  }
}

}  // namespace moestro
