// SPDX-License-Identifier: MIT
// What a Player reads before layers ask for it.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sim/player.h"

namespace moestro {

void Player::SettlePrefetched(uint32_t layer) {
  for (Prefetched& p : prefetched_) {
    if (p.key.layer.value != layer || p.is_ready || !is_done(p)) continue;
    table(p.key).Landed(p.slot);
    p.is_ready = true;
  }
}

double Player::ArrivalOf(const ExpertKey& key, const Placement& placed) {
  if (placed.was == Placement::Was::kReady) return 0.0;
  size_t parts = kMatrices;
  double arrives = 0.0;
  if (placed.was == Placement::Was::kLoading) {
    Prefetched& p = *Find(key);
    parts = std::exchange(p.parts_left, 0);
    arrives = p.arrives;
  }
  for (; parts > 0; --parts) arrives = machine_.Read(size_of(key));
  return arrives;
}

void Player::ReadPrefetched() {
  for (Prefetched& p : prefetched_) {
    while (p.parts_left > 0 && machine_.has_room()) {
      p.arrives = machine_.ReadWaiting(p.since, size_of(p.key));
      --p.parts_left;
    }
  }
}

void Player::BeginLayer(LayerId layer) {
  for (SlotTable& table : tables_) table.BeginLayer(layer);
}

void Player::Predict(LayerId layer, std::span<const ExpertId> experts) {
  for (SlotTable& table : tables_) table.Predict(layer, experts);
}

bool Player::Prefetch(ExpertKey key) {
  const std::optional<Placement> placed = table(key).Request(key, Use::kPrefetch);
  if (!placed) return false;
  const bool is_absent = placed->was == Placement::Was::kAbsent;
  prefetched_.push_back({.key = key,
                         .slot = placed->slot,
                         .is_ready = !is_absent,
                         .parts_left = is_absent ? kMatrices : 0,
                         .since = machine_.now()});
  return true;
}

void Player::Withdraw(ExpertKey key) {
  const auto p = Find(key);
  if (p->parts_left > 0) {
    table(key).Failed(p->slot);
  } else if (!p->is_ready) {
    table(key).Landed(p->slot);
  }
  table(key).Unpin(p->slot);
  prefetched_.erase(p);
}

void Player::Release(ExpertKey key) {
  const auto p = Find(key);
  // What nobody took over goes on being read.
  for (; p->parts_left > 0; --p->parts_left) {
    p->arrives = machine_.ReadWaiting(p->since, size_of(key));
  }
  if (!p->is_ready) table(key).Landed(p->slot);
  table(key).Unpin(p->slot);
  prefetched_.erase(p);
}

bool Player::is_complete(ExpertKey key) const {
  return is_done(*std::ranges::find(prefetched_, key, &Prefetched::key));
}

bool Player::is_done(const Prefetched& p) const {
  return p.parts_left == 0 && p.arrives <= machine_.now();
}

std::vector<Prefetched>::iterator Player::Find(ExpertKey key) {
  const auto p = std::ranges::find(prefetched_, key, &Prefetched::key);
  CHECK(p != prefetched_.end());
  return p;
}

}  // namespace moestro
