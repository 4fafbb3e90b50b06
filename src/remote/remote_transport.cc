// SPDX-License-Identifier: MIT
#include "remote/remote_transport.h"

#include <ggml.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <utility>

#include "base/number.h"
#include "base/result.h"
#include "base/terminal.h"
#include "remote/worker.h"
#include "remote/worker_process.h"
#include "store/open_files.h"

namespace moestro {

namespace {

constexpr std::chrono::seconds kFirstWait{2};
constexpr std::chrono::seconds kLongestWait{60};
// Bytes of a worker's process: code, libraries, heap (35 to 45 MiB were measured).
constexpr uint64_t kWorkerProcess = 48 * kMiB;

// Waits for `time`. False: the stop came first.
bool WaitOut(const std::stop_token& stop, std::chrono::seconds time) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any wakes;
  wakes.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace

LaunchShape RemoteTransport::ShapeOf(const LaunchShape& here, bool is_exact) {
  return {.n_embd = here.n_embd,
          .n_ff = here.n_ff,
          .activation = here.activation,
          .most_pairs = kWorkerPairs,
          .n_used = here.n_used,
          .is_exact = is_exact};
}

uint64_t RemoteTransport::BytesHere(const RemoteModel& model) {
  return kWorkerProcess + WorkerLayout(model.shape).all() + RemoteUpload::BytesFor(model);
}

Result<std::unique_ptr<WorkerProcess>> RemoteTransport::Reach(const RemoteHost& host,
                                                              const RemoteOptions& options,
                                                              const RemoteModel& model) {
  TRY(const std::string address, ResolveHost(host, options.takes_public));
  WorkerSetup setup{.bytes = host.bytes, .shape = model.shape};
  std::memcpy(setup.endpoint.data(), address.data(),
              std::min(address.size(), setup.endpoint.size() - 1));
  setup.n_forms = static_cast<uint32_t>(model.catalog.forms.size());
  std::ranges::copy(model.catalog.forms, setup.forms.begin());
  std::ranges::copy(model.catalog.copies_by_form(), setup.experts.begin());
  return WorkerProcess::Start(options.program, host.address(), setup, {});
}

Result<std::unique_ptr<RemoteTransport>> RemoteTransport::Open(const RemoteHost& host,
                                                               const RemoteOptions& options,
                                                               const RemoteModel& model) {
  if (model.catalog.forms.size() > kMostWorkerForms) {
    return Fail(Errc::kUnsupported, "--remote: this model's experts have {} forms; {} are the most",
                model.catalog.forms.size(), kMostWorkerForms);
  }
  TRY(auto worker, Reach(host, options, model));
  std::unique_ptr<RemoteTransport> transport(
      new RemoteTransport(host, options, model, std::move(worker)));
  if (model.shape.is_exact) {
    TRY(transport->first_results_, transport->KnownResults());
  }
  return transport;
}

RemoteTransport::RemoteTransport(const RemoteHost& host, const RemoteOptions& options,
                                 const RemoteModel& model, std::unique_ptr<WorkerProcess> worker)
    : host_(host),
      options_(options),
      model_(model),
      shape_(model.shape),
      worker_(std::move(worker)),
      info_{.name = worker_->host(),
            .description = "remote host",
            .backend = "RPC",
            .kind = DeviceKind::kRemote,
            .memory_free = worker_->ready().memory_free},
      known_row_(KnownRow(shape_.n_embd)) {
  const std::span slots = std::span(worker_->ready().slots).first(model_.catalog.forms.size());
  slots_.assign(slots.begin(), slots.end());
}

RemoteTransport::~RemoteTransport() = default;

// Reaches the host with another worker. The host must have as many slots as before and, where runs
// are exact, compute to the same bits.
Result<std::unique_ptr<WorkerProcess>> RemoteTransport::ReachAgain() const {
  TRY(auto worker, Reach(host_, options_, model_));
  RemoteTransport again(host_, options_, model_, std::move(worker));
  for (size_t f = 0; f < slots_.size(); ++f) {
    if (again.slots_[f] < slots_[f]) {
      return Fail(Errc::kDevice, "the remote host {} has less memory than before", info_.name);
    }
  }
  if (!first_results_.empty()) {
    TRY(const std::vector<float> now, again.KnownResults());
    if (now != first_results_) {
      return Fail(Errc::kDevice, "the remote host {} computes otherwise than before", info_.name);
    }
  }
  return std::move(again.worker_);
}

// Results for known rows. Stage, for an expert of each form: x [rows][n_embd] -> y [rows][n_embd].
Result<std::vector<float>> RemoteTransport::KnownResults() {
  constexpr uint32_t kRows = 4;
  const ExpertCatalog& catalog = model_.catalog;
  TRY(const ExtentReader file, ExtentReader::Open(model_.paths));
  const std::vector<float> x = KnownRow(kRows * shape_.n_embd);
  std::vector<float> all;
  for (uint32_t form = 0; form < catalog.forms.size(); ++form) {
    if (slots_[form] == 0) continue;
    const std::optional<ExpertKey> key = catalog.any_of(form);
    CHECK(key);  // a host has slots for forms of the catalog
    for (const Matrix matrix : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
      if (BytesOf(form, matrix) == 0) continue;
      TRY(const ExtentBytes read, file.Read(catalog.copy(*key).matrix(matrix)));
      TRY_STATUS(Write({.form = form, .matrix = matrix, .slot = {}}, read.bytes));
    }
    const LayerPlan plan{.n_rows = kRows};
    std::vector<Pair> pairs;
    for (uint32_t r = 0; r < kRows; ++r) pairs.push_back({.pair = r, .row = r, .slot = {}});
    std::vector<float> y(x.size());
    Begin(plan, x.data(), y.data());
    TRY_STATUS(Launch(form, pairs));
    TRY_STATUS(Finish());
    all.append_range(y);
  }
  return all;
}

RemoteTransport::Return::Return(const RemoteTransport& host)
    : thread_([this, &host](const std::stop_token& stop) {
        for (std::chrono::seconds wait = kFirstWait; WaitOut(stop, wait);
             wait = std::min(2 * wait, kLongestWait)) {
          auto worker =
              Caught([&] { return host.ReachAgain(); },
                     [](std::string_view why) {
                       return Result<std::unique_ptr<WorkerProcess>>(Fail(Errc::kIo, "{}", why));
                     });
          if (!worker) continue;
          worker_ = *std::move(worker);
          is_there_ = true;
          return;
        }
      }) {}

std::unique_ptr<WorkerProcess> RemoteTransport::Return::Take() {
  return is_there_ ? std::move(worker_) : nullptr;
}

bool RemoteTransport::ComesBack() {
  if (!comes_back_) {
    if (!is_wrong_ && worker_->is_lost()) comes_back_ = std::make_unique<Return>(*this);
    return false;
  }
  std::unique_ptr<WorkerProcess> worker = comes_back_->Take();
  if (!worker) return false;
  comes_back_.reset();
  upload_.reset();  // refers to the worker that is lost
  worker_ = std::move(worker);
  flights_.clear();
  next_flight_ = 0;
  known_.clear();
  known_at_.clear();
  LogInfo("the remote host {} is back", info_.name);
  return true;
}

Status RemoteTransport::BeginToBring(std::span<const DeviceTier::Promotion> experts) {
  TRY(upload_, RemoteUpload::Begin(model_, *worker_, {experts.begin(), experts.end()}));
  return {};
}

std::vector<Transport::Landed> RemoteTransport::TakeLanded() {
  if (!upload_) return {};
  std::vector<Landed> landed = upload_->TakeLanded();
  Know(upload_->TakeKnown());
  return landed;
}

void RemoteTransport::Know(std::span<const KnownResult> results) {
  for (const KnownResult& result : results) {
    known_at_[PlaceOf(result.form, result.slot)] = known_.size();
    known_.push_back({.result = result});
  }
}

void RemoteTransport::Distrust(const std::string& why) {
  is_wrong_ = true;
  worker_->GiveUp(why);
}

void RemoteTransport::Begin(const LayerPlan& plan, const float* ffn_in, float* results) {
  plan_ = &plan;
  ffn_in_ = ffn_in;
  results_ = results;
  odd_pairs_.clear();
}

// Stage: x [pairs][n_embd] from ffn_in [rows][n_embd], or [1][n_embd] for one row, and slots
// [pairs] to the flight's place.
Status RemoteTransport::Launch(uint32_t form, std::span<const Pair> pairs) {
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

void RemoteTransport::MarkUsed(uint32_t form, std::span<const Pair> pairs) {
  if (known_.empty()) return;
  for (const Pair& pair : pairs) {
    const auto at = known_at_.find(PlaceOf(form, pair.slot));
    if (at != known_at_.end()) known_[at->second].is_used = true;
  }
}

std::optional<size_t> RemoteTransport::NextToCheck() {
  for (size_t i = 0; i < known_.size(); ++i) {
    const size_t at = next_known_++ % known_.size();
    if (known_[at].is_used) return at;
  }
  return std::nullopt;
}

// Stage: the known row, slots [checked] to the flight's place. REQUIRES: experts of one form.
Status RemoteTransport::LaunchKnown(std::vector<size_t> checked) {
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

Status RemoteTransport::CheckResults() {
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

Status RemoteTransport::Compare(const Flight& flight) {
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
Status RemoteTransport::CollectOldest() {
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

Status RemoteTransport::Finish() {
  while (!flights_.empty()) TRY_STATUS(CollectOldest());
  plan_ = nullptr;
  return {};
}

// Takes outstanding replies, which would otherwise pass for replies to later launches.
void RemoteTransport::Abandon() {
  for (; !flights_.empty(); flights_.erase(flights_.begin())) {
    if (!worker_->AwaitLaunch()) flights_.resize(1);
  }
  plan_ = nullptr;
}

uint64_t RemoteTransport::BytesOf(uint32_t form, Matrix matrix) const {
  const CopyForm& its = model_.catalog.forms[form];
  const auto m = static_cast<size_t>(matrix);
  if (!its.has(m)) return 0;
  const bool is_down = matrix == Matrix::kDown;
  return ggml_row_size(static_cast<ggml_type>(its.types[m]), is_down ? its.n_ff : its.n_embd) *
         (is_down ? its.n_embd : its.n_ff);
}

// In pieces that the place for uploads holds.
Status RemoteTransport::Write(const Target& to, std::span<const std::byte> bytes) {
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

Status RemoteTransport::Read(const Target&, std::span<std::byte>) const {
  return Fail(Errc::kUnsupported, "experts are not read back from {}", worker_->host());
}

}  // namespace moestro
