// SPDX-License-Identifier: MIT
// What a device beside memory takes from it and gives back.
#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "residency/residency.h"

namespace moestro {

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
  std::array<std::byte*, kMatrices> to{};
  for (size_t m = 0; m < kMatrices; ++m) to[m] = window(pool, placed->slot, m);
  if (fetch(to)) {
    slot.landed = kAllLanded;
  } else {
    slot.missing = kAllLanded;
  }
  Close(pool, placed->slot);
  pool.table->Unpin(placed->slot);
}

void Residency::Drop(ExpertKey key) { pools_[catalog_->copy(key).pool].table->Drop(key); }

}  // namespace moestro
