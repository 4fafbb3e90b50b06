// SPDX-License-Identifier: MIT
#include "residency/residency.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/number.h"
#include "base/result.h"
#include "decide/slots/policy.h"
#include "decide/slots/slot_table.h"

namespace moestro {
namespace {

// A read's tag: the pool, slot and matrix that the read lands in.
struct Tag {
  uint32_t pool;
  SlotId slot;
  size_t matrix;
};
uint64_t Encode(Tag tag) {
  return (uint64_t{tag.pool} << 40) | (uint64_t{tag.slot.value} << 2) | tag.matrix;
}
Tag Decode(uint64_t tag) {
  return {.pool = static_cast<uint32_t>(tag >> 40),
          .slot = SlotId{static_cast<uint32_t>(tag >> 2)},
          .matrix = static_cast<size_t>(tag & 3)};
}

}  // namespace

Lease::Lease(Lease&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)),
      pool_(other.pool_),
      slot_(other.slot_),
      key_(other.key_),
      was_(other.was_),
      is_wanted_(other.is_wanted_) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(pool_, other.pool_);
  std::swap(slot_, other.slot_);
  std::swap(key_, other.key_);
  std::swap(was_, other.was_);
  std::swap(is_wanted_, other.is_wanted_);
  return *this;
}

Lease::~Lease() {
  if (owner_ != nullptr) owner_->Unpin(*this);
}

std::byte* Lease::matrix(Matrix m) const {
  const Residency::Pool& pool = owner_->pools_[pool_];
  const ExpertCopy& copy = owner_->catalog_->copy(key_);
  const size_t i = copy.slice_of(m);
  return owner_->window(pool, slot_, i) + pool.slots[slot_.value].residue[i] +
         copy.offset_in_slice(m);
}

bool Lease::landed(Matrix m) const {
  const size_t i = owner_->catalog_->copy(key_).slice_of(m);
  return (owner_->pools_[pool_].slots[slot_.value].landed >> i & 1U) != 0;
}

bool Lease::is_complete() const {
  return owner_->pools_[pool_].slots[slot_.value].landed == Residency::kAllLanded;
}

Lease::Notes Lease::notes() const { return owner_->pools_[pool_].slots[slot_.value].notes; }

void Lease::SetNotes(const Notes& notes) const {
  CHECK(is_complete());
  owner_->pools_[pool_].slots[slot_.value].notes = notes;
}

Result<std::unique_ptr<Residency>> Residency::Create(const ExpertCatalog& catalog,
                                                     std::span<const uint64_t> slots,
                                                     const PolicyChoice& policy, ReadQueue& queue,
                                                     const Clock& clock,
                                                     const HostMemorySource& memory) {
  CHECK(slots.size() == catalog.pools.size());
  std::unique_ptr<Residency> residency(new Residency(catalog, queue, clock));
  for (size_t p = 0; p < catalog.pools.size(); ++p) {
    TRY_STATUS(
        residency->AddPool(CapacityFor(catalog.pools[p], queue.block()), slots[p], policy, memory));
  }
  return residency;
}

std::array<uint64_t, kMatrices> Residency::CapacityFor(const PoolShape& shape, uint64_t block) {
  std::array<uint64_t, kMatrices> capacity;
  for (size_t m = 0; m < kMatrices; ++m) {
    capacity[m] = WindowCapacity(shape.slice_bytes[m], block);
  }
  return capacity;
}

// For the largest of each matrix.
std::array<uint64_t, kMatrices> Residency::StagingCapacity(const ExpertCatalog& catalog,
                                                           uint64_t block) {
  std::array<uint64_t, kMatrices> most{};
  for (const PoolShape& pool : catalog.pools) {
    const std::array<uint64_t, kMatrices> its = CapacityFor(pool, block);
    for (size_t m = 0; m < kMatrices; ++m) most[m] = std::max(most[m], its[m]);
  }
  return most;
}

uint64_t Residency::StagingSlotBytes(const ExpertCatalog& catalog, uint64_t block) {
  const std::array<uint64_t, kMatrices> bytes = StagingCapacity(catalog, block);
  return bytes[0] + bytes[1] + bytes[2];
}

Status Residency::AllocateStaging(uint64_t slots, const HostMemorySource& memory) {
  CHECK(pools_.size() == staging());
  return AddPool(StagingCapacity(*catalog_, block_), slots, PolicyChoice{.name = "lru"}, memory);
}

Status Residency::AddPool(const std::array<uint64_t, kMatrices>& capacity, uint64_t slots,
                          const PolicyChoice& policy, const HostMemorySource& memory) {
  PolicyShape shape{.slots = slots,
                    .layers = static_cast<uint32_t>(catalog_->layers.size()),
                    .first_layer = catalog_->n_encoder};
  for (const ExpertCatalog::Layer& layer : catalog_->layers) {
    shape.experts = std::max(shape.experts, static_cast<uint32_t>(layer.experts.size()));
  }
  Pool pool;
  pool.capacity = capacity;
  for (size_t m = 0; m < kMatrices; ++m) {
    pool.offset[m] = pool.stride;
    pool.stride += capacity[m];
  }
  TRY(std::unique_ptr<Policy> chosen, MakePolicy(policy));
  pool.table = std::make_unique<SlotTable>(shape, std::move(chosen));
  pool.slots.resize(slots);
  TRY_STATUS(Allocate(pool, slots, memory));
  pools_.push_back(std::move(pool));
  return {};
}

Status Residency::Allocate(Pool& pool, uint64_t slots, const HostMemorySource& source) {
  const uint64_t most = source.most_bytes / pool.stride;
  if (most == 0) return Fail(Errc::kNoMemory, "a slot takes {} bytes in one piece", pool.stride);
  pool.slots_per_piece = std::clamp<uint64_t>(slots, 1, most);
  for (uint64_t begin = 0; begin < slots; begin += pool.slots_per_piece) {
    const uint64_t n = std::min(pool.slots_per_piece, slots - begin);
    TRY(HostMemory piece, source.allocate(n * pool.stride));
    pool.memory.push_back(std::move(piece));
  }
  return {};
}

void Residency::Populate(size_t part, size_t parts) const {
  for (const Pool& pool : pools_) {
    for (const HostMemory& memory : pool.memory) {
      const uint64_t step = AlignUp(memory.size() / parts + 1, 2 * kMiB);
      const uint64_t begin = std::min(part * step, memory.size());
      const uint64_t end = std::min(begin + step, memory.size());
      if (end > begin) memory.Populate(begin, end - begin);
    }
  }
}

uint64_t Residency::RegisterMemory() {
  std::vector<std::span<std::byte>> pieces;
  for (const Pool& pool : pools_) {
    for (const HostMemory& memory : pool.memory) pieces.push_back(memory.bytes());
  }
  has_registered_ = true;
  return queue_->RegisterMemory(pieces);
}

Residency::~Residency() {
  Drain();
  if (has_registered_) queue_->ForgetMemory();
}

void Residency::Drain() {
  while (!queue_->idle()) Wait();
}

void Residency::Settle() {
  Drain();
  error_.reset();
}

void Residency::Abandon() {
  Pump();
  for (uint32_t p = 0; p < pools_.size(); ++p) {
    for (uint32_t i = 0; i < pools_[p].slots.size(); ++i) Abandon(p, SlotId{i});
  }
  error_.reset();
}

void Residency::Abandon(uint32_t p, SlotId id) {
  Slot& slot = pools_[p].slots[id.value];
  if (slot.outstanding == 0 || slot.wanted > 0) return;
  for (size_t m = 0; m < kMatrices; ++m) {
    const uint64_t tag = Encode({.pool = p, .slot = id, .matrix = m});
    if (queue_->Drop(tag) != ReadQueue::Dropped::kGone) continue;
    slot.missing = static_cast<uint8_t>(slot.missing | (1U << m));
    --slot.outstanding;
  }
  if (slot.outstanding == 0) Close(p, id);
}

std::optional<Lease> Residency::TryAcquire(ExpertKey key, Use use, Urgency urgency, uint32_t rows) {
  const uint32_t p = catalog_->copy(key).pool;
  Pool& pool = pools_[p];
  const std::optional<Placement> placed = pool.table->Request(key, use, rows);
  if (!placed) return std::nullopt;
  if (use == Use::kDecode) {
    for (const uint32_t other : catalog_->layers[key.layer.value].pools) {
      if (other != p) pools_[other].table->OtherCopyUsed(key, rows);
    }
  }
  return LeaseOf(p, *placed, key, urgency);
}

Lease Residency::LeaseOf(uint32_t p, const Placement& placed, ExpertKey key, Urgency urgency) {
  Slot& slot = pools_[p].slots[placed.slot.value];
  const bool is_wanted = urgency == Urgency::kDemand;
  if (is_wanted && slot.wanted++ == 0 && placed.was != Placement::Was::kReady) BeginDemand();
  if (placed.was == Placement::Was::kAbsent) {
    StartReads(p, placed.slot, key, urgency);
  } else if (placed.was == Placement::Was::kLoading && is_wanted) {
    MakeUrgent(p, placed.slot, key);
  }
  return {*this, p, placed, key, is_wanted};
}

void Residency::Withdraw(Lease prefetch) {
  CHECK(!prefetch.is_wanted_);
  Pool& pool = pools_[prefetch.pool_];
  Slot& slot = pool.slots[prefetch.slot_.value];
  if (slot.outstanding == 0 || slot.wanted > 0) return;
  for (size_t m = 0; m < kMatrices; ++m) {
    if (!queue_->Cancel(Encode({.pool = prefetch.pool_, .slot = prefetch.slot_, .matrix = m})))
      continue;
    slot.missing = static_cast<uint8_t>(slot.missing | (1U << m));
    --slot.outstanding;
  }
  if (slot.missing == 0) return;
  ++dropped_prefetches_;
  if (slot.outstanding == 0) Close(prefetch.pool_, prefetch.slot_);
}

bool Residency::contains(ExpertKey key) const {
  return pools_[catalog_->copy(key).pool].table->contains(key);
}

Residency::Grid Residency::grid(uint32_t p) const {
  const Pool& pool = pools_[p];
  CHECK(pool.memory.size() <= 1);
  return {.begin = pool.memory.empty() ? nullptr : pool.memory.front().data(),
          .stride = pool.stride,
          .slots = pool.slots.size(),
          .offset = pool.offset};
}

std::span<const std::byte> Residency::memory() const {
  std::span<const std::byte> largest;
  for (const Pool& pool : pools_) {
    for (const HostMemory& piece : pool.memory) {
      if (piece.size() > largest.size()) largest = piece.bytes();
    }
  }
  return largest;
}

void Residency::SetObserver(const SlotTable::Observer& observer) {
  for (uint32_t p = 0; p < staging(); ++p) pools_[p].table->SetObserver(observer);
}

void Residency::BeginSequence() {
  for (Pool& pool : pools_) pool.table->BeginSequence();
}

void Residency::BeginLayer(ExpertLayerId layer) {
  for (Pool& pool : pools_) pool.table->BeginLayer(layer);
}

void Residency::Predict(ExpertLayerId layer, std::span<const ExpertId> experts) {
  for (const uint32_t pool : catalog_->layers[layer.value].pools) {
    pools_[pool].table->Predict(layer, experts);
  }
}

void Residency::LearnPrompt(const LayerPlan& plan) {
  moestro::LearnPrompt(
      plan, [this](ExpertKey key) { return catalog_->copy(key).pool; },
      [this](uint32_t pool) -> SlotTable& { return *pools_[pool].table; });
}

void Residency::StartReads(uint32_t p, SlotId slot, ExpertKey key, Urgency urgency) {
  Pool& pool = pools_[p];
  Slot& state = pool.slots[slot.value];
  state.landed = 0;
  state.missing = 0;
  state.key = key;
  state.notes = {};
  state.outstanding = 0;
  const std::array<Extent, kMatrices>& slices = catalog_->copy(key).slices;
  for (size_t m = 0; m < kMatrices; ++m) {
    if (slices[m].length > 0) {
      ++state.outstanding;
    } else {
      state.landed = static_cast<uint8_t>(state.landed | (1U << m));  // nothing to read
    }
  }
  for (size_t m = 0; m < kMatrices; ++m) {
    if (slices[m].length > 0) StartRead(p, slot, key, m, urgency);
  }
}

void Residency::StartRead(uint32_t p, SlotId slot, ExpertKey key, size_t m, Urgency urgency) {
  Pool& pool = pools_[p];
  const Extent& from = catalog_->copy(key).slices[m];
  pool.slots[slot.value].residue[m] = CoveringWindow(from, block_).residue;
  queue_->Enqueue({.from = from,
                   .landing = {window(pool, slot, m), pool.capacity[m]},
                   .tag = Encode({.pool = p, .slot = slot, .matrix = m}),
                   .urgency = urgency});
}

// Promotes the speculative reads of the slot to demand reads and starts reading missing matrices.
void Residency::MakeUrgent(uint32_t p, SlotId slot, ExpertKey key) {
  Slot& state = pools_[p].slots[slot.value];
  for (size_t m = 0; m < kMatrices; ++m) {
    if ((state.missing >> m & 1U) != 0) {
      ++state.outstanding;
      StartRead(p, slot, key, m, Urgency::kDemand);
    } else {
      queue_->Promote(Encode({.pool = p, .slot = slot, .matrix = m}));
    }
  }
  state.missing = 0;
}

void Residency::Pump() {
  done_.clear();
  queue_->Pump(done_);
  for (const ExtentDone& done : done_) Finish(done);
  if (beside_) beside_();
}

void Residency::PumpAhead(uint64_t most_bytes) {
  done_.clear();
  queue_->PumpAhead(done_, most_bytes);
  for (const ExtentDone& done : done_) Finish(done);
}

void Residency::Wait() {
  done_.clear();
  queue_->Wait(done_);
  for (const ExtentDone& done : done_) Finish(done);
}

void Residency::WaitBriefly() {
  done_.clear();
  queue_->WaitBriefly(done_);
  for (const ExtentDone& done : done_) Finish(done);
}

void Residency::Finish(const ExtentDone& done) {
  const Tag tag = Decode(done.tag);
  // A read of another owner would write over memory that is not a slot's.
  CHECK(tag.pool < pools_.size() && tag.slot.value < pools_[tag.pool].slots.size());
  Pool& pool = pools_[tag.pool];
  Slot& slot = pool.slots[tag.slot.value];
  CHECK(slot.outstanding > 0);
  if (done.error) {
    if (slot.wanted > 0 && done.error->code == Errc::kInterrupted) {
      // The read was cancelled before this caller requested the expert, so start it again.
      return StartRead(tag.pool, tag.slot, slot.key, tag.matrix, Urgency::kDemand);
    }
    // A failed read without a waiting caller is no error: the next request for the expert reads the
    // matrix again.
    slot.missing = static_cast<uint8_t>(slot.missing | (1U << tag.matrix));
    if (slot.wanted > 0 && !error_) error_ = done.error;
  } else {
    slot.landed = static_cast<uint8_t>(slot.landed | (1U << tag.matrix));
  }
  if (--slot.outstanding > 0) return;
  if (slot.wanted > 0) EndDemand();
  Close(tag.pool, tag.slot);
}

void Residency::BeginDemand() {
  if (demands_++ == 0) demand_since_ = clock_();
}

void Residency::EndDemand() {
  if (--demands_ > 0) return;
  demand_seconds_ += clock_() - demand_since_;
}

// Ends a slot's reads, all of which have returned: marks the expert present, or failed if a matrix
// is missing.
void Residency::Close(uint32_t p, SlotId id) {
  Pool& pool = pools_[p];
  Slot& slot = pool.slots[id.value];
  if (std::exchange(slot.is_recalled, false)) {
    recalled_bytes_ -= catalog_->pools[p].expert_bytes();
  }
  if (slot.missing != 0) {
    pool.table->Failed(id);
  } else {
    CHECK(slot.landed == kAllLanded);
    pool.table->Landed(id);
  }
}

void Residency::Unpin(const Lease& lease) {
  Pool& pool = pools_[lease.pool_];
  Slot& slot = pool.slots[lease.slot_.value];
  if (lease.is_wanted_ && --slot.wanted == 0 && slot.outstanding > 0) EndDemand();
  pool.table->Unpin(lease.slot_);
  if (lease.pool_ == staging()) pool.table->Drop(lease.key_);
}

std::optional<Error> Residency::TakeError() { return std::exchange(error_, std::nullopt); }

std::optional<Lease> Residency::TryStage(ExpertKey key, Use use, uint32_t rows) {
  if (contains(key)) return TryAcquire(key, use, Urgency::kDemand, rows);
  const std::optional<Placement> placed = pools_[staging()].table->Request(key, use, rows);
  if (!placed) return std::nullopt;
  if (placed->was == Placement::Was::kAbsent) {
    staged_bytes_ += catalog_->pools[catalog_->copy(key).pool].expert_bytes();
  }
  return LeaseOf(staging(), *placed, key, Urgency::kDemand);
}

std::optional<SlotTable::Room> Residency::RoomFor(ExpertKey key,
                                                  std::span<const ExpertKey> keeps) const {
  return pools_[catalog_->copy(key).pool].table->RoomFor(Use::kDecode, keeps);
}

void Residency::Adopt(ExpertKey key, std::span<const ExpertKey> keeps, const Fetch& fetch) {
  if (contains(key)) return;
  Pool& pool = pools_[catalog_->copy(key).pool];
  const std::optional<Placement> placed = pool.table->Adopt(key, keeps);
  if (!placed) return;
  Slot& slot = pool.slots[placed->slot.value];
  slot = {};
  const ExpertCopy& copy = catalog_->copy(key);
  std::array<std::byte*, kMatrices> to{};
  for (const Matrix m : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
    to[static_cast<size_t>(m)] =
        window(pool, placed->slot, copy.slice_of(m)) + copy.offset_in_slice(m);
  }
  if (fetch(to)) {
    slot.landed = kAllLanded;
  } else {
    slot.missing = kAllLanded;
  }
  Close(catalog_->copy(key).pool, placed->slot);
  pool.table->Unpin(placed->slot);
}

void Residency::Recall(std::vector<SlotTable::Used> experts) {
  recalled_ = std::move(experts);
  next_recalled_ = 0;
}

void Residency::RecallAhead(uint64_t bytes) {
  PumpAhead();  // takes what has landed
  while (is_recalling() && recalled_bytes_ < bytes) RecallNext();
  PumpAhead();
}

// Starts reading the next expert to recall, unless it is present or has no slot.
void Residency::RecallNext() {
  const SlotTable::Used next = recalled_[next_recalled_++];
  const uint32_t p = catalog_->copy(next.key).pool;
  const std::optional<Placement> placed = pools_[p].table->Recall(next.key, next.uses);
  if (!placed) return;
  StartReads(p, placed->slot, next.key, Urgency::kSpeculative);
  pools_[p].slots[placed->slot.value].is_recalled = true;
  recalled_bytes_ += catalog_->pools[p].expert_bytes();
  pools_[p].table->Unpin(placed->slot);
}

void Residency::Drop(ExpertKey key) { pools_[catalog_->copy(key).pool].table->Drop(key); }

ExpertCounts Residency::stats() const {
  ExpertCounts sum;
  for (size_t p = 0; p < pools_.size(); ++p) {
    const ExpertCounts& of_pool = pools_[p].table->stats();
    const bool is_staging = p == staging();
    const uint64_t expert_bytes = is_staging ? 0 : catalog_->pools[p].expert_bytes();
    const uint64_t staged_bytes = is_staging ? staged_bytes_ : 0;
    sum += of_pool;
    sum.asked_bytes += of_pool.requests * expert_bytes + staged_bytes;
    sum.needed_bytes += (of_pool.absent() + of_pool.used_prefetches) * expert_bytes + staged_bytes;
  }
  sum.dropped_prefetches = dropped_prefetches_;
  sum.demand_seconds = demand_seconds_;
  sum.bytes_read = queue_->stats().bytes;
  return sum;
}

}  // namespace moestro
