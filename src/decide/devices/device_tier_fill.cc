// SPDX-License-Identifier: MIT
// Which experts are on the devices before decode begins.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "decide/devices/device_tier.h"

namespace moestro {

std::vector<DeviceTier::Promotion> DeviceTier::Fill(std::span<const ExpertKey> first) {
  return FillWithin(first, std::numeric_limits<double>::infinity());
}

std::vector<DeviceTier::Promotion> DeviceTier::FillByPrompt() {
  if (is_filled_ || prompt_rows_.empty()) {
    is_filled_ = true;  // decode without a prompt is not interrupted later
    return {};
  }
  std::vector<std::pair<ExpertKey, uint64_t>> asked(prompt_rows_.begin(), prompt_rows_.end());
  std::ranges::sort(asked, [](const auto& a, const auto& b) {
    return std::tie(b.second, a.first) < std::tie(a.second, b.first);
  });
  std::vector<ExpertKey> popular;
  for (const auto& [key, rows] : asked) popular.push_back(key);
  prompt_rows_.clear();
  std::vector<Promotion> filled = FillWithin(popular, kMostFillSeconds);
  is_filled_ = true;
  return filled;
}

// Which experts get a slot, and which have one and keep it. Slots are given later.
std::vector<DeviceTier::Promotion> DeviceTier::ChooseFilled(std::span<const ExpertKey> first,
                                                            double seconds,
                                                            std::vector<ExpertKey>& kept) const {
  std::vector<std::vector<uint32_t>> room = RoomFor({});
  std::vector<Promotion> chosen;
  for (const ExpertKey key : first) {
    const uint32_t form = parts_.form_of(key);
    if (const auto there = DeviceOf(key)) {
      if (room[*there][form] == 0) continue;
      --room[*there][form];
      kept.push_back(key);
      continue;
    }
    const auto has_room = [form](const std::vector<uint32_t>& its) { return its[form] > 0; };
    const auto found = std::ranges::find_if(room, has_room);
    if (found == room.end()) continue;
    const auto device = static_cast<uint32_t>(found - room.begin());
    const uint64_t bytes = parts_.bytes_of(key);
    if (std::isfinite(seconds)) {
      seconds -= model_.devices[device].copy.Seconds(bytes);
      if (!is_in_memory(key)) seconds -= model_.disk.Seconds(bytes);
      if (seconds < 0.0) break;
    }
    --(*found)[form];
    chosen.push_back({.key = key, .device = device, .slot = {}});
  }
  return chosen;
}

std::vector<DeviceTier::Promotion> DeviceTier::FillWithin(std::span<const ExpertKey> first,
                                                          double seconds) {
  if (mode_ == PlaceMode::kCpu) return {};
  std::vector<ExpertKey> kept;
  std::vector<Promotion> filled = ChooseFilled(first, seconds, kept);
  is_filled_ = is_filled_ || !filled.empty();
  std::vector<std::pair<SlotTable*, SlotId>> pinned;
  for (const ExpertKey key : kept) {
    SlotTable& its = *table(*DeviceOf(key), key);
    pinned.emplace_back(&its, its.Request(key, Use::kPrefetch)->slot);
  }
  // As if prefetched: the policy does not know them yet, and the oldest of them leaves first.
  std::ranges::reverse(filled);
  for (Promotion& one : filled) {
    const std::optional<Placement> placed =
        table(one.device, one.key)->Request(one.key, Use::kPrefetch);
    CHECK(placed.has_value());
    one.slot = placed->slot;
    // As if it had been used like others so far.
    uses_[one.key] = {.count = parts_.usual_share / (1.0 - std::exp2(-1.0 / kHalfLife)),
                      .step = step_};
    ++work_[one.device].filled;
    work_[one.device].copied_bytes += parts_.bytes_of(one.key);
    ++under_way_[parts_.pool_of(one.key)];
  }
  for (const auto& [its, slot] : pinned) its->Unpin(slot);
  return filled;
}

}  // namespace moestro
