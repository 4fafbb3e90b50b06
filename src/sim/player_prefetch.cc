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

std::vector<Machine::Ticket> Player::ReadsOf(const ExpertKey& key, const Placement& placed) {
  if (placed.was == Placement::Was::kReady) return {};
  if (placed.was == Placement::Was::kAbsent) {
    uses_[pools_.of(key)][placed.slot.value] = 0;
    return Read(key, true);
  }
  const Prefetched& p = *Find(key);
  for (const Machine::Ticket read : p.reads) machine_.Promote(read);
  return p.reads;
}

std::vector<Machine::Ticket> Player::Read(ExpertKey key, bool is_urgent) {
  std::vector<Machine::Ticket> reads;
  for (const double bytes : pools_.matrices(pools_.of(key))) {
    reads.push_back(machine_.Read(bytes, is_urgent));
  }
  return reads;
}

bool Player::has_all(std::span<const Machine::Ticket> reads) const {
  return std::ranges::all_of(reads,
                             [this](Machine::Ticket read) { return machine_.is_done(read); });
}

void Player::BeginLayer(LayerId layer) {
  for (SlotTable& table : tables_) table.BeginLayer(layer);
}

void Player::Predict(LayerId layer, std::span<const ExpertId> experts) {
  for (const uint32_t pool : pools_.of_layer(layer)) tables_[pool].Predict(layer, experts);
}

bool Player::Prefetch(ExpertKey key) {
  const std::optional<Placement> placed = table(key).Request(key, Use::kPrefetch);
  if (!placed) return false;
  const bool is_absent = placed->was == Placement::Was::kAbsent;
  if (is_absent) uses_[pools_.of(key)][placed->slot.value] = 0;
  prefetched_.push_back({.key = key,
                         .slot = placed->slot,
                         .is_ready = !is_absent,
                         .reads = is_absent ? Read(key, false) : std::vector<Machine::Ticket>()});
  return true;
}

void Player::Withdraw(ExpertKey key) {
  const auto p = Find(key);
  bool is_cut = false;
  for (const Machine::Ticket read : p->reads) is_cut = machine_.Cancel(read) || is_cut;
  if (is_cut) {
    table(key).Failed(p->slot);
  } else if (!p->is_ready) {
    table(key).Landed(p->slot);
  }
  table(key).Unpin(p->slot);
  prefetched_.erase(p);
}

// What nobody took over goes on being read.
void Player::Release(ExpertKey key) {
  const auto p = Find(key);
  if (!p->is_ready) table(key).Landed(p->slot);
  table(key).Unpin(p->slot);
  prefetched_.erase(p);
}

bool Player::is_complete(ExpertKey key) const {
  return is_done(*std::ranges::find(prefetched_, key, &Prefetched::key));
}

bool Player::is_done(const Prefetched& p) const { return has_all(p.reads); }

std::vector<Prefetched>::iterator Player::Find(ExpertKey key) {
  const auto p = std::ranges::find(prefetched_, key, &Prefetched::key);
  CHECK(p != prefetched_.end());
  return p;
}

}  // namespace moestro
