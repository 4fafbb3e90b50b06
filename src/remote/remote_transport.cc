// SPDX-License-Identifier: MIT
#include "remote/remote_transport.h"

#include <ggml.h>

#include <algorithm>
#include <bit>
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
#include "base/work_limit.h"
#include "compute/expert_kernel.h"
#include "compute/product_node.h"
#include "remote/worker.h"
#include "store/open_files.h"

namespace moestro {
namespace {

size_t ActivationBytes(const FormKernels& k, Matrix matrix) {
  return k.kernel[static_cast<size_t>(matrix)].activation_bytes(matrix == Matrix::kDown ? k.n_ff
                                                                                        : k.n_embd);
}

}  // namespace

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

Result<std::unique_ptr<RemoteUpload>> RemoteUpload::Begin(
    const RemoteModel& model, WorkerProcess& worker, std::vector<DeviceTier::Promotion> experts) {
  TRY(ExtentReader reader, ExtentReader::Open(model.paths));
  std::unique_ptr<RemoteUpload> upload(
      new RemoteUpload(model, std::move(reader), worker, std::move(experts)));
  if (model.shape.is_exact) {
    upload->known_row_ = KnownRow(model.shape.n_embd);
    size_t largest = 0;
    for (const FormKernels& kernels : model.kernels) {
      for (const Matrix matrix : {kernels.first(), Matrix::kUp, Matrix::kDown}) {
        largest = std::max(largest, ActivationBytes(kernels, matrix));
      }
    }
    TRY(upload->quantised_, HostMemory::Allocate(largest));
  }
  upload->thread_ = std::jthread([its = upload.get()] { its->Run(); });
  return upload;
}

RemoteUpload::~RemoteUpload() { ends_ = true; }

std::vector<RemoteUpload::Landed> RemoteUpload::TakeLanded() {
  if (!is_done_) return {};
  const std::lock_guard lock(mutex_);
  return std::exchange(landed_, {});
}

std::vector<KnownResult> RemoteUpload::TakeKnown() {
  if (!is_done_) return {};
  const std::lock_guard lock(mutex_);
  return std::exchange(known_, {});
}

// Stage: an expert's matrix times the known row, or, for the down matrix, times the joined products
// of gate and up.
void RemoteUpload::Multiply(const FormKernels& k, Matrix matrix, std::span<const std::byte> weights,
                            Products& products) {
  const auto m = static_cast<size_t>(matrix);
  const bool is_down = matrix == Matrix::kDown;
  products.gate.resize(k.n_ff);  // zeros without a gate
  std::vector<float>& out = is_down ? result_ : matrix == Matrix::kUp ? products.up : products.gate;
  out.resize(is_down ? k.n_embd : k.n_ff);
  if (is_down) Join(model_.shape.activation, products.up, products.gate);
  const std::vector<float>& in = is_down ? products.gate : known_row_;
  const ExpertKernel& kernel = k.kernel[m];
  kernel.quantise(kernel, in.data(), quantised_.data(), static_cast<int64_t>(in.size()));
  const std::byte* const activations = quantised_.data();
  float* const to = out.data();
  kernel.multiply(kernel, {.rows = weights.data(),
                           .row_bytes = k.row_bytes[m],
                           .n_in = static_cast<int64_t>(in.size()),
                           .n_rows = static_cast<int64_t>(out.size()),
                           .activations = &activations,
                           .out = &to,
                           .n_tokens = 1});
}

// Brings the layers. Every expert is reported as landed, or, after an error, as not there.
void RemoteUpload::Run() {
  const double start = SteadySeconds();
  Status status;
  std::span<const DeviceTier::Promotion> left = experts_;
  while (!left.empty()) {
    const auto other = std::ranges::find_if(left, [&](const DeviceTier::Promotion& one) {
      return one.key.layer != left.front().key.layer;
    });
    const auto layer = left.first(static_cast<size_t>(other - left.begin()));
    left = left.subspan(layer.size());
    if (status) {
      status = Caught([&] { return Bring(layer); },
                      [](std::string_view why) -> Status { return Fail(Errc::kIo, "{}", why); });
      const bool is_news = !status && !ends_ && status.error().code != Errc::kDevice;
      if (is_news)
        LogWarning("{}; {} gets no more experts", status.error().message, worker_.host());
    }
    const std::lock_guard lock(mutex_);
    for (const DeviceTier::Promotion& one : layer) {
      landed_.push_back({.expert = one, .is_there = status.has_value()});
    }
  }
  if (status) {
    LogInfo("the remote host {} has its {} experts, after {:.1f} s", worker_.host(),
            experts_.size(), SteadySeconds() - start);
  }
  is_done_ = true;
}

Status RemoteUpload::Bring(std::span<const DeviceTier::Promotion> layer) {
  products_.assign(layer.size(), {});
  for (const Matrix matrix : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
    TRY_STATUS(BringMatrices(matrix, layer));
  }
  return {};
}

// Keeps a known result. One with NaN or infinity is left out: such bits may differ without an
// error.
void RemoteUpload::Keep(const DeviceTier::Promotion& expert) {
  if (!std::ranges::all_of(result_, [](float value) { return std::isfinite(value); })) return;
  const std::lock_guard lock(mutex_);
  known_.push_back({.form = model_.catalog.copy(expert.key).form,
                    .slot = expert.slot,
                    .digest = DigestOf(result_)});
}

uint64_t RemoteUpload::BytesFor(const RemoteModel& model) {
  uint64_t matrix = 0;
  for (const PoolShape& pool : model.catalog.pools) {
    for (const uint64_t bytes : pool.slice_bytes) matrix = std::max(matrix, bytes);
  }
  if (!model.shape.is_exact) return matrix;
  constexpr uint64_t kOfAnExpert = 128;  // lists here and in the transport
  const uint64_t products = uint64_t{2} * model.shape.n_ff * sizeof(float);
  return matrix + model.moe.experts() * kOfAnExpert + model.moe.n_expert * products;
}

// Stage: matrices of consecutive slots, one behind the other, in pieces of kUploadBytes.
Status RemoteUpload::BringMatrices(Matrix matrix, std::span<const DeviceTier::Promotion> layer) {
  WriteMessage piece{.matrix = matrix};
  const auto send = [&]() -> Status {
    if (piece.bytes == 0) return {};
    if (ends_) return Fail(Errc::kInterrupted, "stopped on request");
    TRY_STATUS(worker_.Write(piece));
    piece.bytes = 0;
    return {};
  };
  const ExpertCopy* before = nullptr;
  uint32_t slot_before = 0;
  for (size_t i = 0; i < layer.size(); ++i) {
    const DeviceTier::Promotion& one = layer[i];
    const ExpertCopy& copy = model_.catalog.copy(one.key);
    const Extent extent = copy.matrix(matrix);
    if (extent.length == 0) continue;
    const bool follows = before != nullptr && before->form == copy.form &&
                         slot_before + 1 == static_cast<uint32_t>(one.slot.value);
    if (!follows) TRY_STATUS(send());
    before = &copy;
    slot_before = static_cast<uint32_t>(one.slot.value);
    TRY(const ExtentBytes read, reader_.Read(extent));
    if (!known_row_.empty()) {
      Multiply(model_.kernels[copy.form], matrix, read.bytes, products_[i]);
      if (matrix == Matrix::kDown) Keep(one);
    }
    for (uint64_t done = 0; done < read.bytes.size();) {
      if (piece.bytes == kUploadBytes) TRY_STATUS(send());
      if (piece.bytes == 0) {
        piece.form = copy.form;
        piece.slot = slot_before;
        piece.offset = done;
      }
      const uint64_t n = std::min(read.bytes.size() - done, kUploadBytes - piece.bytes);
      std::memcpy(worker_.upload() + piece.bytes, read.bytes.data() + done, n);
      piece.bytes += n;
      done += n;
    }
  }
  return send();
}

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
