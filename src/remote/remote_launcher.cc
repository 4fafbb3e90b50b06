// SPDX-License-Identifier: MIT
#include "remote/remote_launcher.h"

#include <ggml.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace moestro {

RemoteLauncher::RemoteLauncher(WorkerProcess& worker, std::span<const CopyForm> forms,
                               const LaunchShape& shape)
    : worker_(&worker),
      forms_(forms.begin(), forms.end()),
      shape_(shape),
      info_{.name = worker.host(),
            .description = "remote host",
            .backend = "RPC",
            .kind = DeviceKind::kRemote,
            .memory_free = worker.ready().memory_free} {
  shape_.most_pairs = kWorkerPairs;
}

void RemoteLauncher::Take(WorkerProcess& worker) {
  worker_ = &worker;
  flights_.clear();
  next_flight_ = 0;
}

void RemoteLauncher::Begin(const LayerPlan& plan, const float* ffn_in, float* results) {
  plan_ = &plan;
  ffn_in_ = ffn_in;
  results_ = results;
}

// Stage: x [pairs][n_embd] from ffn_in [rows][n_embd], or [1][n_embd] for one row, and slots
// [pairs] to the flight's place.
Status RemoteLauncher::Launch(uint32_t form, std::span<const Pair> pairs) {
  if (flights_.size() == kWorkerFlights) TRY_STATUS(CollectOldest());
  const bool is_one_row = plan_->n_rows == 1;
  const size_t width = shape_.n_embd;
  Flight flight{.number = next_flight_++ % kWorkerFlights};
  for (size_t i = 0; i < pairs.size(); ++i) {
    flight.pairs.push_back(pairs[i].pair);
    worker_->slots(flight.number)[i] = static_cast<int32_t>(pairs[i].slot.value);
    if (i > 0 && is_one_row) continue;
    std::memcpy(worker_->x(flight.number) + i * width, ffn_in_ + pairs[i].row * width,
                width * sizeof(float));
  }
  TRY_STATUS(worker_->Launch({.flight = flight.number,
                              .form = form,
                              .n_pairs = static_cast<uint32_t>(pairs.size()),
                              .is_one_row = is_one_row}));
  flights_.push_back(std::move(flight));
  return {};
}

// Stage: y [pairs][n_embd] to results [pair][n_embd].
Status RemoteLauncher::CollectOldest() {
  const Flight flight = std::move(flights_.front());
  flights_.erase(flights_.begin());
  TRY_STATUS(worker_->AwaitLaunch());
  const size_t width = shape_.n_embd;
  for (size_t i = 0; i < flight.pairs.size(); ++i) {
    std::memcpy(results_ + flight.pairs[i] * width, worker_->y(flight.number) + i * width,
                width * sizeof(float));
  }
  return {};
}

Status RemoteLauncher::Finish() {
  while (!flights_.empty()) TRY_STATUS(CollectOldest());
  plan_ = nullptr;
  return {};
}

// Replies that are not taken would be taken for those of later launches.
void RemoteLauncher::Abandon() {
  for (; !flights_.empty(); flights_.erase(flights_.begin())) {
    if (!worker_->AwaitLaunch()) flights_.resize(1);
  }
  plan_ = nullptr;
}

uint64_t RemoteLauncher::BytesOf(uint32_t form, Matrix matrix) const {
  const CopyForm& its = forms_[form];
  const auto m = static_cast<size_t>(matrix);
  if (!its.has(m)) return 0;
  const bool is_down = matrix == Matrix::kDown;
  return ggml_row_size(static_cast<ggml_type>(its.types[m]), is_down ? its.n_ff : its.n_embd) *
         (is_down ? its.n_embd : its.n_ff);
}

// In pieces that the place for uploads holds.
Status RemoteLauncher::Write(const Target& to, std::span<const std::byte> bytes) {
  uint64_t offset = to.offset;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min<size_t>(bytes.size(), kUploadBytes));
    std::memcpy(worker_->upload(), piece.data(), piece.size());
    TRY_STATUS(worker_->Write({.form = to.form,
                               .matrix = to.matrix,
                               .slot = to.slot.value,
                               .offset = offset,
                               .bytes = piece.size()}));
    offset += piece.size();
    bytes = bytes.subspan(piece.size());
  }
  return {};
}

Status RemoteLauncher::Read(const Target&, std::span<std::byte>) const {
  return Fail(Errc::kUnsupported, "experts are not read back from {}", worker_->host());
}

}  // namespace moestro
