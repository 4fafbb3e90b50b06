// SPDX-License-Identifier: MIT
#include "engine/layer_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "compute/activation.h"
#include "compute/expert_kernel.h"
#include "engine/spin.h"

namespace moestro {
namespace {

constexpr size_t kMatrixGate = static_cast<size_t>(Matrix::kGate);
constexpr size_t kMatrixUp = static_cast<size_t>(Matrix::kUp);
constexpr size_t kMatrixDown = static_cast<size_t>(Matrix::kDown);

// A block of rows is about this many weight bytes: long enough that claiming it costs nothing,
// short enough that two cores finish together and reads are moved along every few microseconds.
constexpr size_t kBlockBytes = 48 * kKiB;
constexpr uint32_t kRowMultiple = 16;  // kernels work on tiles of rows

uint32_t RowsPerBlock(size_t row_bytes, uint32_t rows) {
  const auto wanted = static_cast<uint32_t>(kBlockBytes / std::max<size_t>(row_bytes, 1));
  const uint32_t whole = std::max(kRowMultiple, wanted / kRowMultiple * kRowMultiple);
  return std::min(whole, rows);
}

constexpr uint32_t CeilDivide(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

}  // namespace

LayerRun::LayerRun(ExpertScratch& scratch, const LayerKernels& layer, const Routing& routing,
                   const ExpertJobs& jobs, const ExpertRows& rows, Leases leases)
    : s_(scratch),
      layer_(layer),
      routing_(routing),
      jobs_(jobs),
      rows_(rows),
      leases_(leases.now),
      ahead_(leases.ahead),
      hidden_rows_(
          RowsPerBlock(layer.row_bytes[kMatrixGate] + layer.row_bytes[kMatrixUp], layer.n_ff)),
      down_rows_(RowsPerBlock(layer.row_bytes[kMatrixDown], layer.n_embd)),
      shared_input_(layer.kernel[kMatrixGate].quantise == layer.kernel[kMatrixUp].quantise &&
                    layer.kernel[kMatrixGate].activation_type ==
                        layer.kernel[kMatrixUp].activation_type) {
  CHECK(jobs.jobs.size() <= s_.jobs.size() && leases_.size() == jobs.jobs.size());
  CHECK(routing.n_tokens <= s_.limits.tokens);
  for (size_t j = 0; j < jobs.jobs.size(); ++j) {
    JobState& job = s_.jobs[j];
    job.hidden.Reset(CeilDivide(layer.n_ff, hidden_rows_));
    job.quantise.Reset(jobs.jobs[j].n_pairs);
    job.down.Reset(CeilDivide(layer.n_embd, down_rows_));
    job.landed.store(0, std::memory_order_relaxed);
    job.let_go = false;
  }
  Pump();
}

const std::byte* LayerRun::input_of(size_t matrix, uint32_t token) const {
  const size_t set = matrix == kMatrixUp && !shared_input_ ? 1 : 0;
  return s_.input + (set * s_.limits.tokens + token) * s_.limits.activation_bytes_embd;
}

void LayerRun::Work(int thread, int n_threads) {
  QuantiseInputs(thread, n_threads);
  SpinUntil([&] { return inputs_ready_.load(std::memory_order_acquire) == n_threads; });
  Spinner idle;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (thread == 0) Pump();
    if (TryTask(thread)) {
      idle.Reset();
      continue;
    }
    if (first_open_.load(std::memory_order_acquire) == jobs_.jobs.size()) break;
    if (thread == 0) {
      WaitForBytes();
    } else {
      idle.Pause();
    }
  }
  if (!stop_.load(std::memory_order_acquire)) SumUp(thread, n_threads);
}

void LayerRun::Pump() {
  if (!leases_.all_taken()) leases_.Advance();
  if (ahead_ != nullptr && leases_.all_taken() && !ahead_->all_taken()) ahead_->Advance();
  s_.residency->Pump();
  if (auto error = s_.residency->TakeError()) {
    error_ = std::move(error);
    stop_.store(true, std::memory_order_release);
    return;
  }
  while (first_held_ < jobs_.jobs.size() && s_.jobs[first_held_].let_go) ++first_held_;
  for (size_t j = first_held_; j < jobs_.jobs.size(); ++j) {
    JobState& job = s_.jobs[j];
    if (job.let_go) continue;
    if (leases_.lease(j) == nullptr) break;  // leases are taken in order
    if (job.down.is_done()) {
      job.let_go = true;
      leases_.LetGo(j);
    } else {
      ShowLanded(j);
    }
  }
}

void LayerRun::ShowLanded(size_t j) {
  JobState& job = s_.jobs[j];
  const Lease& lease = *leases_.lease(j);
  uint8_t landed = job.landed.load(std::memory_order_relaxed);
  for (size_t m = 0; m < kMatrices; ++m) {
    const auto matrix = static_cast<Matrix>(m);
    if ((landed >> m & 1U) != 0 || !lease.landed(matrix)) continue;
    job.matrix[m] = lease.matrix(matrix);
    landed = static_cast<uint8_t>(landed | (1U << m));
  }
  job.landed.store(landed, std::memory_order_release);
}

// Spinning answers a completed read within a microsecond; after a while the reader sleeps in the
// kernel instead, so that a slow disk does not burn a core.
void LayerRun::WaitForBytes() {
  constexpr uint32_t kSpins = 2000;
  const auto start = std::chrono::steady_clock::now();
  if (++idle_rounds_ < kSpins) {
    for (int i = 0; i < 16; ++i) CpuRelax();
  } else {
    idle_rounds_ = 0;
    s_.residency->Wait();
  }
  s_.wait_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool LayerRun::TryTask(int thread) {
  size_t first = first_open_.load(std::memory_order_acquire);
  while (first < jobs_.jobs.size() && s_.jobs[first].down.is_done()) {
    // Losing this race only means that another thread has moved the mark further.
    if (first_open_.compare_exchange_strong(first, first + 1, std::memory_order_acq_rel)) ++first;
  }
  for (size_t j = first; j < jobs_.jobs.size(); ++j) {
    if (TryJob(j, thread)) return true;
  }
  return false;
}

bool LayerRun::TryJob(size_t j, int thread) {
  JobState& job = s_.jobs[j];
  if (!job.hidden.is_done()) {
    if (!job.has(kMatrixGate) || !job.has(kMatrixUp)) return false;
    const auto block = job.hidden.Claim();
    if (!block) return false;
    MultiplyHidden(j, *block, thread);
    job.hidden.Finish();
    return true;
  }
  if (!job.quantise.is_done()) {
    const auto pair = job.quantise.Claim();
    if (!pair) return false;
    QuantiseProduct(j, *pair);
    job.quantise.Finish();
    return true;
  }
  if (!job.has(kMatrixDown)) return false;
  const auto block = job.down.Claim();
  if (!block) return false;
  MultiplyDown(j, *block);
  job.down.Finish();
  return true;
}

void LayerRun::QuantiseInputs(int thread, int n_threads) {
  for (size_t m = kMatrixGate; m <= (shared_input_ ? kMatrixGate : kMatrixUp); ++m) {
    const ExpertKernel& kernel = layer_.kernel[m];
    for (auto t = static_cast<uint32_t>(thread); t < routing_.n_tokens;
         t += static_cast<uint32_t>(n_threads)) {
      kernel.quantise(kernel, rows_.ffn_in + size_t{t} * layer_.n_embd,
                      const_cast<std::byte*>(input_of(m, t)), layer_.n_embd);
    }
  }
  inputs_ready_.fetch_add(1, std::memory_order_acq_rel);
}

// Tokens of a job are taken in groups that fit arrays on the stack.
constexpr uint32_t kGroup = 64;

// Threads take blocks in turn, so the block this thread gets next is probably one team further.
const std::byte* LayerRun::Following(size_t j, size_t m, uint32_t row, uint32_t block_rows,
                                     uint32_t all_rows) const {
  const uint32_t next = row + block_rows * s_.team->threads();
  return next < all_rows ? s_.jobs[j].matrix[m] + next * layer_.row_bytes[m] : nullptr;
}

void LayerRun::AddBias(size_t m, size_t j, uint32_t row, std::span<float> rows) const {
  if (layer_.bias[m] == nullptr) return;
  const uint32_t width = m == kMatrixDown ? layer_.n_embd : layer_.n_ff;
  const float* bias = layer_.bias[m] + size_t{jobs_.jobs[j].expert.value} * width + row;
  for (size_t r = 0; r < rows.size(); ++r) rows[r] += bias[r];
}

void LayerRun::MultiplyHidden(size_t j, uint32_t block, int thread) {
  const ExpertJobs::Job& job = jobs_.jobs[j];
  const uint32_t row = block * hidden_rows_;
  const uint32_t n_rows = std::min(hidden_rows_, layer_.n_ff - row);
  std::array<const std::byte*, kGroup> x{};
  std::array<float*, kGroup> out{};
  std::vector<float>& up_rows = s_.up_rows[static_cast<size_t>(thread)];
  if (up_rows.size() < size_t{kGroup} * n_rows) up_rows.resize(size_t{kGroup} * n_rows);
  for (uint32_t first = 0; first < job.n_pairs; first += kGroup) {
    const uint32_t n = std::min(kGroup, job.n_pairs - first);
    const auto multiply = [&](size_t m, float* base, size_t stride, const std::byte* next) {
      for (uint32_t i = 0; i < n; ++i) {
        x[i] = input_of(m, jobs_.token_of[job.first_pair + first + i]);
        out[i] = base + i * stride;
      }
      const ExpertKernel& kernel = layer_.kernel[m];
      kernel.multiply(kernel, {.rows = s_.jobs[j].matrix[m] + row * layer_.row_bytes[m],
                               .row_bytes = layer_.row_bytes[m],
                               .n_in = layer_.n_embd,
                               .n_rows = n_rows,
                               .activations = x.data(),
                               .out = out.data(),
                               .n_tokens = n,
                               .next = next,
                               .next_bytes = next != nullptr ? layer_.row_bytes[m] * 16 : 0});
    };
    float* gate = s_.products + size_t{job.first_pair + first} * layer_.n_ff + row;
    multiply(kMatrixGate, gate, layer_.n_ff,
             s_.jobs[j].matrix[kMatrixUp] + row * layer_.row_bytes[kMatrixUp]);
    multiply(kMatrixUp, up_rows.data(), n_rows,
             Following(j, kMatrixGate, row, hidden_rows_, layer_.n_ff));
    for (uint32_t i = 0; i < n; ++i) {
      float* g = gate + size_t{i} * layer_.n_ff;
      float* u = up_rows.data() + size_t{i} * n_rows;
      AddBias(kMatrixGate, j, row, {g, n_rows});
      AddBias(kMatrixUp, j, row, {u, n_rows});
      Join(layer_.activation, {u, n_rows}, {g, n_rows});
    }
  }
}

void LayerRun::QuantiseProduct(size_t j, uint32_t i) {
  const size_t pair = jobs_.jobs[j].first_pair + i;
  const ExpertKernel& kernel = layer_.kernel[kMatrixDown];
  kernel.quantise(kernel, s_.products + pair * layer_.n_ff,
                  s_.products_q + pair * s_.limits.activation_bytes_ff, layer_.n_ff);
}

void LayerRun::MultiplyDown(size_t j, uint32_t block) {
  const ExpertJobs::Job& job = jobs_.jobs[j];
  const uint32_t row = block * down_rows_;
  const uint32_t n_rows = std::min(down_rows_, layer_.n_embd - row);
  const ExpertKernel& kernel = layer_.kernel[kMatrixDown];
  const std::byte* next = Following(j, kMatrixDown, row, down_rows_, layer_.n_embd);
  std::array<const std::byte*, kGroup> x{};
  std::array<float*, kGroup> out{};
  for (uint32_t first = 0; first < job.n_pairs; first += kGroup) {
    const uint32_t n = std::min(kGroup, job.n_pairs - first);
    for (uint32_t i = 0; i < n; ++i) {
      const size_t pair = job.first_pair + first + i;
      x[i] = s_.products_q + pair * s_.limits.activation_bytes_ff;
      out[i] = s_.results + pair * layer_.n_embd + row;
    }
    kernel.multiply(kernel,
                    {.rows = s_.jobs[j].matrix[kMatrixDown] + row * layer_.row_bytes[kMatrixDown],
                     .row_bytes = layer_.row_bytes[kMatrixDown],
                     .n_in = layer_.n_ff,
                     .n_rows = n_rows,
                     .activations = x.data(),
                     .out = out.data(),
                     .n_tokens = n,
                     .next = next,
                     .next_bytes = next != nullptr ? layer_.row_bytes[kMatrixDown] * 16 : 0});
    for (uint32_t i = 0; i < n; ++i) AddBias(kMatrixDown, j, row, {out[i], n_rows});
  }
}

void LayerRun::SumUp(int thread, int n_threads) const {
  // Columns are split, not tokens: one token is the common case.
  const uint32_t width = layer_.n_embd;
  const uint32_t begin = width * static_cast<uint32_t>(thread) / static_cast<uint32_t>(n_threads);
  const uint32_t end = width * static_cast<uint32_t>(thread + 1) / static_cast<uint32_t>(n_threads);
  for (uint32_t t = 0; t < routing_.n_tokens; ++t) {
    float* out = rows_.hidden + size_t{t} * width;
    const float* residual = rows_.residual + size_t{t} * width;
    for (uint32_t c = begin; c < end; ++c) out[c] = 0.0F;
    for (uint32_t k = 0; k < routing_.n_used; ++k) {
      const float weight = routing_.weights[size_t{t} * routing_.n_used + k];
      const float* y = s_.results + size_t{jobs_.pair_of[size_t{t} * routing_.n_used + k]} * width;
      for (uint32_t c = begin; c < end; ++c) out[c] += weight * y[c];
    }
    if (rows_.shared != nullptr) {
      const float* shared = rows_.shared + size_t{t} * width;
      for (uint32_t c = begin; c < end; ++c) out[c] += shared[c];
    }
    for (uint32_t c = begin; c < end; ++c) out[c] += residual[c];
  }
}

}  // namespace moestro
