// SPDX-License-Identifier: MIT
#include "remote/remote_launcher.h"

#include <ggml.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

namespace moestro {

std::vector<float> KnownRow(uint32_t n_embd) {
  std::vector<float> row(n_embd);
  for (size_t i = 0; i < row.size(); ++i) row[i] = std::sin(static_cast<float>(i));
  return row;
}

// FNV-1a over the bits.
uint64_t DigestOf(std::span<const float> result) {
  uint64_t digest = 0xcbf29ce484222325;
  for (const float value : result) {
    digest = (digest ^ std::bit_cast<uint32_t>(value)) * 0x100000001b3;
  }
  return digest;
}

RemoteLauncher::RemoteLauncher(WorkerProcess& worker, std::span<const CopyForm> forms,
                               const LaunchShape& shape)
    : worker_(&worker),
      forms_(forms.begin(), forms.end()),
      shape_(shape),
      info_{.name = worker.host(),
            .description = "remote host",
            .backend = "RPC",
            .kind = DeviceKind::kRemote,
            .memory_free = worker.ready().memory_free},
      known_row_(KnownRow(shape.n_embd)) {
  shape_.most_pairs = kWorkerPairs;
}

void RemoteLauncher::Take(WorkerProcess& worker) {
  worker_ = &worker;
  flights_.clear();
  next_flight_ = 0;
  known_.clear();
  known_at_.clear();
}

void RemoteLauncher::Know(std::span<const KnownResult> results) {
  for (const KnownResult& result : results) {
    known_at_[PlaceOf(result.form, result.slot)] = known_.size();
    known_.push_back({.result = result});
  }
}

void RemoteLauncher::Distrust(const std::string& why) {
  is_wrong_ = true;
  worker_->GiveUp(why);
}

void RemoteLauncher::Begin(const LayerPlan& plan, const float* ffn_in, float* results) {
  plan_ = &plan;
  ffn_in_ = ffn_in;
  results_ = results;
  odd_pairs_.clear();
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
  MarkUsed(form, pairs);
  if (++launches_ < check_every_) return {};
  const std::optional<size_t> known = NextToCheck();
  if (!known) return {};
  launches_ = 0;
  return LaunchKnown({*known});
}

void RemoteLauncher::MarkUsed(uint32_t form, std::span<const Pair> pairs) {
  if (known_.empty()) return;
  for (const Pair& pair : pairs) {
    const auto at = known_at_.find(PlaceOf(form, pair.slot));
    if (at != known_at_.end()) known_[at->second].is_used = true;
  }
}

std::optional<size_t> RemoteLauncher::NextToCheck() {
  for (size_t i = 0; i < known_.size(); ++i) {
    const size_t at = next_known_++ % known_.size();
    if (known_[at].is_used) return at;
  }
  return std::nullopt;
}

// Stage: the known row, slots [checked] to the flight's place. REQUIRES: experts of one form.
Status RemoteLauncher::LaunchKnown(std::vector<size_t> checked) {
  if (flights_.size() == kWorkerFlights) TRY_STATUS(CollectOldest());
  Flight flight{.number = next_flight_++ % kWorkerFlights, .checked = std::move(checked)};
  std::ranges::copy(known_row_, worker_->x(flight.number));
  for (size_t i = 0; i < flight.checked.size(); ++i) {
    const KnownResult& known = known_[flight.checked[i]].result;
    worker_->slots(flight.number)[i] = static_cast<int32_t>(known.slot.value);
  }
  TRY_STATUS(worker_->Launch({.flight = flight.number,
                              .form = known_[flight.checked.front()].result.form,
                              .n_pairs = static_cast<uint32_t>(flight.checked.size()),
                              .is_one_row = true}));
  flights_.push_back(std::move(flight));
  return {};
}

Status RemoteLauncher::CheckResults() {
  std::vector<size_t> together;
  const auto launch = [&]() -> Status {
    return together.empty() ? Status() : LaunchKnown(std::exchange(together, {}));
  };
  Status checked;
  for (size_t i = 0; i < known_.size(); ++i) {
    if (!known_[i].is_used) continue;
    const bool fits =
        together.size() < kWorkerPairs &&
        (together.empty() || known_[together.front()].result.form == known_[i].result.form);
    if (!fits) checked = launch();
    if (!checked) break;
    together.push_back(i);
  }
  if (checked) checked = launch();
  if (checked) checked = Finish();
  if (!checked) Abandon();
  return checked;
}

Status RemoteLauncher::Compare(const Flight& flight) {
  const size_t width = shape_.n_embd;
  for (size_t i = 0; i < flight.checked.size(); ++i) {
    Known& known = known_[flight.checked[i]];
    const std::span<const float> result(worker_->y(flight.number) + i * width, width);
    if (DigestOf(result) != known.result.digest) {
      is_wrong_ = true;
      return Fail(Errc::kDevice,
                  "the remote host {} computes a known row otherwise than this machine",
                  worker_->host());
    }
    known.is_used = false;
  }
  return {};
}

// Stage: y [pairs][n_embd] to results [pair][n_embd].
Status RemoteLauncher::CollectOldest() {
  const Flight flight = std::move(flights_.front());
  flights_.erase(flights_.begin());
  TRY_STATUS(worker_->AwaitLaunch());
  if (!flight.checked.empty()) return Compare(flight);
  const size_t width = shape_.n_embd;
  for (size_t i = 0; i < flight.pairs.size(); ++i) {
    std::memcpy(results_ + flight.pairs[i] * width, worker_->y(flight.number) + i * width,
                width * sizeof(float));
    const std::span<const float> result(results_ + flight.pairs[i] * width, width);
    const bool is_odd =
        !std::ranges::all_of(result, [](float value) { return std::isfinite(value); });
    if (is_odd) odd_pairs_.push_back(flight.pairs[i]);
  }
  if (odd_pairs_.empty()) return {};
  return Fail(Errc::kDevice, "the remote host {} gave values that are no numbers", worker_->host());
}

Status RemoteLauncher::Finish() {
  while (!flights_.empty()) TRY_STATUS(CollectOldest());
  plan_ = nullptr;
  return {};
}

// Takes outstanding replies, which would otherwise pass for replies to later launches.
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
