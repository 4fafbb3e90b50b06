// SPDX-License-Identifier: MIT
#include "native/weight_load.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/number.h"
#include "base/result.h"
#include "base/wait_word.h"
#include "compute/host_memory.h"
#include "core/extent.h"
#include "model/weights_id.h"

namespace moestro {
namespace {

// Weights that keep their layout are cut into pieces of this size.
constexpr uint64_t kPiece = 4 * kMiB;
static_assert(kPiece % kDenseBlock == 0);
// Bytes read beside the longest piece: enough to keep a disk and some threads busy.
constexpr uint64_t kAhead = 64 * kMiB;
// The longest piece that the leading thread stores if other threads can: a gigabyte takes a second
// or two, and meanwhile no landed piece is handed out.
constexpr uint64_t kLongest = 16 * kMiB;
// The block that staging is planned for. A reader with larger blocks manages with fewer windows.
constexpr uint64_t kUsualBlock = 4 * kKiB;

// Parts of one memory, of any size, given back in any order.
class Windows {
 public:
  explicit Windows(std::span<std::byte> all) : all_(all) {}

  // Takes the first gap that is large enough. Empty: no gap is.
  std::span<std::byte> Take(uint64_t bytes) {
    uint64_t begin = 0;
    for (const auto& [at, length] : taken_) {
      if (at - begin >= bytes) break;
      begin = at + length;
    }
    if (all_.size() - begin < bytes) return {};
    taken_.emplace(begin, bytes);
    return all_.subspan(begin, bytes);
  }
  void GiveBack(std::span<std::byte> taken) {
    taken_.erase(static_cast<uint64_t>(taken.data() - all_.data()));
  }

 private:
  std::span<std::byte> all_;
  std::map<uint64_t, uint64_t> taken_;  // length by offset
};

// One thread leads: it reads, hands out landed pieces, and stores in between. The other threads
// only store. Pieces pass to them by `published_`, windows back by `is_stored_`.
class Loading {
 public:
  explicit Loading(const WeightLoad& load)
      : load_(load),
        windows_(load.staging),
        landing_(load.pieces.size()),
        landed_(load.pieces.size()),
        is_stored_(load.pieces.size()) {
    CHECK(load.queue.idle());
  }

  Status Run() {
    TRY_STATUS(ReadAndStore());
    if (error_) return std::unexpected(*std::move(error_));
    if (store_error_) return std::unexpected(*std::move(store_error_));
    return {};
  }

 private:
  // Bit of published_: no further piece will land.
  static constexpr uint32_t kNoMore = 1U << 31;

  Status ReadAndStore() {
    if (load_.team == nullptr) {
      Lead(1);
    } else {
      auto work = [this](int thread, int n_threads) { thread == 0 ? Lead(n_threads) : Follow(); };
      TRY_STATUS(load_.team->Run(work));
    }
    return {};
  }
  void Lead(int n_threads);
  void Follow();
  void StartReads();
  void Publish();
  void TakeBack();
  bool StoreNext(uint32_t published, uint64_t longest);
  void Store(size_t index);

  const WeightLoad& load_;
  // Members of the leading thread.
  Windows windows_;
  size_t started_ = 0;            // pieces whose read has been requested
  std::vector<size_t> open_;      // started pieces that still have windows
  std::vector<ExtentDone> done_;  // scratch
  std::optional<Error> error_;
  uint32_t n_landed_ = 0;
  uint64_t bytes_ = 0;  // bytes stored, as last reported
  // Members that the leader writes before publishing.
  std::vector<std::span<std::byte>> landing_;  // by piece: its window
  std::vector<size_t> landed_;                 // pieces, in the order in which they landed

  // Orders are those of tests/memory_order/weights_*.litmus.
  WaitWord published_;  // number of pieces in landed_; kNoMore. Passes landing_ and the bytes on.
  // Number of published pieces that threads have taken. Relaxed: published_ passes their data on.
  std::atomic<uint32_t> claimed_{0};
  // By piece; release and acquire: a window is reused after the last read of it.
  std::vector<std::atomic<bool>> is_stored_;
  WaitWord n_stored_;  // added to after is_stored_, loaded before it
  // Relaxed: ends the leader's loop sooner; the error itself is read after all threads have met.
  std::atomic<bool> has_failed_to_store_{false};
  std::mutex store_mutex_;
  std::optional<Error> store_error_;  // the first one; under store_mutex_
};

void Loading::Lead(int n_threads) {
  const uint64_t longest = n_threads > 1 ? kLongest : UINT64_MAX;
  while (!error_ && !has_failed_to_store_.load(std::memory_order_relaxed)) {
    const uint32_t n_stored = n_stored_.load();
    TakeBack();
    if (started_ == load_.pieces.size() && open_.empty()) break;
    StartReads();
    load_.queue.PumpAhead(done_);  // storing a piece takes a while
    Publish();
    if (error_ || StoreNext(n_landed_, longest)) continue;
    if (load_.queue.idle()) {
      n_stored_.Sleep(n_stored);  // other threads have all windows
    } else {
      load_.queue.Wait(done_);
      Publish();
    }
  }
  while (!load_.queue.idle()) load_.queue.Wait(done_);
  published_.Set(kNoMore);
}

void Loading::Follow() {
  for (;;) {
    const uint32_t published = published_.load();
    if (StoreNext(published & ~kNoMore, UINT64_MAX)) continue;
    if ((published & kNoMore) != 0) return;
    published_.Sleep(published);
  }
}

// Reads begin in the order of pieces: a long piece finds room when earlier pieces are stored.
void Loading::StartReads() {
  for (; started_ < load_.pieces.size(); ++started_) {
    const Extent& from = load_.pieces[started_].from;
    const std::span<std::byte> window =
        windows_.Take(WindowCapacity(from.length, load_.queue.block()));
    if (window.empty()) break;
    landing_[started_] = window;
    open_.push_back(started_);
    load_.queue.Enqueue(
        {.from = from, .landing = window, .tag = started_, .urgency = Urgency::kDemand});
  }
  CHECK(!open_.empty());
}

void Loading::Publish() {
  for (ExtentDone& done : done_) {
    if (done.error && !error_) error_ = std::move(done.error);
    if (!error_) landed_[n_landed_++] = done.tag;
  }
  if (done_.empty()) return;
  done_.clear();
  published_.Store(n_landed_);
}

void Loading::TakeBack() {
  const uint64_t before = bytes_;
  std::erase_if(open_, [this](size_t piece) {
    if (!is_stored_[piece].load(std::memory_order_acquire)) return false;
    windows_.GiveBack(landing_[piece]);
    bytes_ += load_.pieces[piece].from.length;
    return true;
  });
  if (bytes_ > before) load_.stored(bytes_);
}

// Stores the next landed piece. False: no landed piece is left, or the next one is longer than
// `longest`.
bool Loading::StoreNext(uint32_t published, uint64_t longest) {
  uint32_t next = claimed_.load(std::memory_order_relaxed);
  do {
    if (next >= published || load_.pieces[landed_[next]].from.length > longest) return false;
  } while (!claimed_.compare_exchange_weak(next, next + 1, std::memory_order_relaxed));
  const size_t index = landed_[next];
  Store(index);
  is_stored_[index].store(true, std::memory_order_release);
  n_stored_.Add(1);
  return true;
}

// Stores a piece. A piece that cannot be stored counts as stored, so that no thread waits for it;
// the error is kept.
void Loading::Store(size_t index) {
  const WeightPiece& piece = load_.pieces[index];
  const uint64_t residue = CoveringWindow(piece.from, load_.queue.block()).residue;
  const auto bytes = landing_[index].subspan(residue, piece.from.length);
  if (load_.landed) load_.landed(piece, bytes);
  Status stored = load_.set.Store(piece.weight, piece.offset, bytes);
  if (stored) return;
  const std::lock_guard lock(store_mutex_);
  if (!store_error_) store_error_ = std::move(stored).error();
  has_failed_to_store_.store(true, std::memory_order_relaxed);
}

}  // namespace

std::vector<WeightPiece> CutWeights(const WeightSet& set, std::span<const Extent> from) {
  CHECK(from.size() == set.size());
  std::vector<WeightPiece> pieces;
  for (size_t i = 0; i < from.size(); ++i) {
    const Extent& whole = from[i];
    const uint64_t most = set.is_repacked(i) ? whole.length : kPiece;
    for (uint64_t at = 0; at < whole.length; at += most) {
      pieces.push_back({.weight = i,
                        .offset = at,
                        .from = {.file = whole.file,
                                 .offset = whole.offset + at,
                                 .length = std::min(most, whole.length - at)}});
    }
  }
  std::ranges::stable_sort(pieces, std::ranges::greater(),
                           [](const WeightPiece& piece) { return piece.from.length; });
  return pieces;
}

uint64_t StagingFor(std::span<const WeightPiece> pieces) {
  uint64_t all = 0;
  for (const WeightPiece& piece : pieces) all += WindowCapacity(piece.from.length, kUsualBlock);
  return pieces.empty() ? 0 : std::min(all, pieces.front().from.length + kAhead);
}

Status LoadWeights(const WeightLoad& load) { return Loading(load).Run(); }

namespace {

using TensorSet = std::unordered_set<const TensorInfo*>;

// Tensors of the roles whose use `is_so` accepts.
TensorSet UsedAs(const ModelWeights& weights, auto&& is_so) {
  TensorSet found;
  ForEachRole(
      [&](const TensorRole& role, const TensorInfo* tensor) {
        if (tensor != nullptr && is_so(role.use)) found.insert(tensor);
      },
      weights);
  return found;
}

// Tensors that may be stored in another layout: multiplied in every role they have. A tied output
// keeps its layout, since embeddings look up its rows as well.
TensorSet OnlyMultiplied(const ModelWeights& weights) {
  TensorSet multiplied =
      UsedAs(weights, [](TensorUse use) { return use == TensorUse::kOnlyMultiplied; });
  const TensorSet otherwise =
      UsedAs(weights, [](TensorUse use) { return use != TensorUse::kOnlyMultiplied; });
  std::erase_if(multiplied, [&](const TensorInfo* tensor) { return otherwise.contains(tensor); });
  return multiplied;
}

std::vector<WeightRequest> RequestsFor(std::span<const TensorInfo* const> tensors,
                                       const TensorSet& multiplied) {
  std::vector<WeightRequest> requests;
  for (const TensorInfo* t : tensors) {
    requests.push_back(
        {.name = t->name, .type = t->type, .ne = t->ne, .only_multiplied = multiplied.contains(t)});
  }
  return requests;
}

std::vector<WeightPiece> PiecesOf(const DensePlan::Part& part) {
  std::vector<Extent> from;
  for (const TensorInfo* t : part.tensors) from.push_back(t->extent);
  return CutWeights(part.set, from);
}

// Bytes for the larger part, since parts are loaded one after the other.
uint64_t StagingFor(const DensePlan& plan) {
  return std::max(StagingFor(PiecesOf(plan.host)), StagingFor(PiecesOf(plan.device)));
}

}  // namespace

Status DensePlan::Allocate() {
  TRY_STATUS(host.set.Allocate());
  return device.set.Allocate();
}

DensePlan PlanDense(const CpuDevice& device, const ModelWeights& weights,
                    const WeightLayouts& layouts) {
  DensePlan plan;
  plan.host.tensors = weights.dense_tensors();
  plan.host.set =
      WeightSet::Plan(device, RequestsFor(plan.host.tensors, OnlyMultiplied(weights)), layouts);
  plan.staging_bytes = StagingFor(plan);
  return plan;
}

DensePlan PlanDenseOn(ggml_backend_t backend, const CpuDevice& device,
                      const ModelWeights& weights) {
  const TensorSet by_host =
      UsedAs(weights, [](TensorUse use) { return use == TensorUse::kByHost; });
  const TensorSet by_graphs =
      UsedAs(weights, [](TensorUse use) { return use != TensorUse::kByHost; });
  DensePlan plan;
  for (const TensorInfo* t : weights.dense_tensors()) {
    if (by_host.contains(t)) plan.host.tensors.push_back(t);
    if (by_graphs.contains(t)) plan.device.tensors.push_back(t);
  }
  plan.host.set = WeightSet::Plan(device, RequestsFor(plan.host.tensors, {}),
                                  {.allow_repack = false, .rows_alike = false});
  plan.device.set = WeightSet::PlanOn(backend, RequestsFor(plan.device.tensors, {}));
  plan.staging_bytes = StagingFor(plan);
  return plan;
}

Status LoadDense(DensePlan& plan, ReadQueue& queue, Team& team,
                 const std::function<void(uint64_t done, uint64_t total)>& progress,
                 std::atomic<uint64_t>* sum) {
  TRY(const HostMemory staging, HostMemory::Allocate(plan.staging_bytes + 2 * queue.block()));
  uint64_t total = 0;
  for (const DensePlan::Part* part : {&plan.host, &plan.device}) {
    for (const TensorInfo* t : part->tensors) total += t->extent.length;
  }
  uint64_t before = 0;  // bytes stored of earlier parts
  for (DensePlan::Part* part : {&plan.host, &plan.device}) {
    const std::vector<WeightPiece> pieces = PiecesOf(*part);
    uint64_t done = 0;
    // A tensor that is in memory and on the device is added once.
    const auto add = [&, is_host = part == &plan.host](const WeightPiece& piece,
                                                       std::span<const std::byte> bytes) {
      const TensorInfo* tensor = part->tensors[piece.weight];
      if (!is_host && std::ranges::contains(plan.host.tensors, tensor)) return;
      sum->fetch_add(DenseSum(tensor->name, piece.offset, bytes), std::memory_order_relaxed);
    };
    TRY_STATUS(LoadWeights({.set = part->set,
                            .pieces = pieces,
                            .queue = queue,
                            .staging = staging.bytes(),
                            .team = part == &plan.host ? &team : nullptr,
                            .stored =
                                [&](uint64_t bytes) {
                                  done = bytes;
                                  progress(before + done, total);
                                },
                            .landed = sum != nullptr ? add : decltype(WeightLoad::landed)()}));
    before += done;
  }
  return {};
}

ModelTensors TensorsByRole(const DensePlan& plan, const ModelWeights& weights) {
  using Loaded = std::unordered_map<const TensorInfo*, ggml_tensor*>;
  const auto of = [](const DensePlan::Part& part) {
    Loaded loaded;
    for (size_t i = 0; i < part.tensors.size(); ++i) loaded[part.tensors[i]] = part.set.tensor(i);
    return loaded;
  };
  const Loaded host = of(plan.host);
  const Loaded device = of(plan.device);
  const auto look_up = [&](const TensorRole& role, const TensorInfo* from, ggml_tensor*& to) {
    if (from == nullptr || role.use == TensorUse::kOnDisk) return;
    const bool is_there = role.use != TensorUse::kByHost && device.contains(from);
    to = (is_there ? device : host).at(from);
  };
  ModelTensors tensors;
  ForEachModelRole(look_up, weights, tensors);
  for (const LayerWeights& layer : weights.layers) {
    ForEachLayerRole(look_up, layer, tensors.layers.emplace_back());
  }
  return tensors;
}

}  // namespace moestro
