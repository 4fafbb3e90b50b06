// SPDX-License-Identifier: MIT
#include "decide/slots/resident_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/result.h"
#include "decide/slots/slot_table.h"

namespace moestro {

ResidentModel::ResidentModel(std::vector<SlotTable> tables,
                             std::function<uint32_t(ExpertKey)> pool_of)
    : tables_(std::move(tables)), pool_of_(std::move(pool_of)) {}

void ResidentModel::BeginSequence() {
  for (SlotTable& table : tables_) table.BeginSequence();
}

void ResidentModel::BeginLayer(ExpertLayerId layer) {
  for (SlotTable& table : tables_) table.BeginLayer(layer);
}

void ResidentModel::Predict(ExpertLayerId layer, std::span<const ExpertId> experts) {
  for (SlotTable& table : tables_) table.Predict(layer, experts);
}

void ResidentModel::Run(const LayerPlan& plan) {
  LearnPrompt(plan, pool_of_, [this](uint32_t pool) -> SlotTable& { return tables_[pool]; });
  for (const PlannedExpert& expert : plan.experts) {
    Request(expert.key, expert.use, expert.n_pairs);
  }
  LetGo();
}

void ResidentModel::Fetch(ExpertKey key) {
  Request(key, Use::kPrefetch, 1);
  LetGo();
}

void ResidentModel::Adopt(ExpertKey key, std::span<const ExpertKey> keeps) {
  SlotTable& table = tables_[pool_of_(key)];
  const std::optional<Placement> placed = table.Adopt(key, keeps);
  if (!placed) return;
  table.Landed(placed->slot);
  table.Unpin(placed->slot);
}

void ResidentModel::Request(ExpertKey key, Use use, uint32_t rows) {
  const uint32_t pool = pool_of_(key);
  std::optional<Placement> placed = tables_[pool].Request(key, use, rows);
  while (!placed) {  // more experts than slots: the oldest are let go, as after their use
    const auto oldest = std::ranges::find(held_, pool, &Held::pool);
    CHECK(oldest != held_.end());
    tables_[pool].Unpin(oldest->slot);
    held_.erase(oldest);
    placed = tables_[pool].Request(key, use, rows);
  }
  if (use == Use::kDecode) {
    for (size_t other = 0; other < tables_.size(); ++other) {
      if (other != pool) tables_[other].OtherCopyUsed(key, rows);
    }
  }
  if (placed->was == Placement::Was::kAbsent) tables_[pool].Landed(placed->slot);
  held_.push_back({.pool = pool, .slot = placed->slot});
}

void ResidentModel::LetGo() {
  for (const Held& held : held_) tables_[held.pool].Unpin(held.slot);
  held_.clear();
}

}  // namespace moestro
