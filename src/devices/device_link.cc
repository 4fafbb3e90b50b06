// SPDX-License-Identifier: MIT
#include "devices/device_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/number.h"
#include "compute/backend_calls.h"
#include "compute/devices.h"

namespace moestro {
namespace {

constexpr uint64_t kRingAlignment = 64;

uint64_t RingBytes(uint64_t bytes) { return AlignUp(bytes, kRingAlignment); }

}  // namespace

uint64_t Border::bytes() const {
  uint64_t all = 0;
  for (const Write& write : writes) all += RingBytes(write.from.size());
  for (const Read& read : reads) all += RingBytes(read.to.size());
  return all;
}

DeviceLink::DeviceLink(const ComputeDevice& device) : device_(device) {
  Result<HostMemory> ring = AllocatePinned(device, kRing);
  if (!ring) return;
  std::memset(ring->data(), 0, kRing);
  if (is_cached(*ring)) ring_ = *std::move(ring);
}

Status DeviceLink::Launch(ggml_cgraph* graph) {
  ++traffic_.launches;
  is_idle_ = false;
  return LaunchOn(device_.backend(), graph);
}

Status DeviceLink::Finish() {
  if (is_idle_) return {};
  ++traffic_.waits;
  TRY_STATUS(device_.Finish());
  is_idle_ = true;
  used_ = 0;  // no copy reads the ring any more
  return {};
}

Status DeviceLink::Cross(const Border& border) {
  traffic_.writes += border.writes.size();
  traffic_.reads += border.reads.size();
  for (const Border::Write& write : border.writes) traffic_.bytes_there += write.from.size();
  for (const Border::Read& read : border.reads) traffic_.bytes_back += read.to.size();
  return border.bytes() <= ring_.size() ? CrossByRing(border) : CrossDirectly(border);
}

// REQUIRES: the ring has room.
std::byte* DeviceLink::TakeRoom(uint64_t bytes) {
  return ring_.data() + std::exchange(used_, used_ + RingBytes(bytes));
}

Status DeviceLink::CrossByRing(const Border& border) {
  if (used_ + border.bytes() > ring_.size()) TRY_STATUS(Finish());
  is_idle_ = false;
  for (const Border::Write& write : border.writes) {
    std::byte* const from = TakeRoom(write.from.size());
    std::ranges::copy(write.from, from);
    TRY_STATUS(QueueCopyTo(device_.backend(), write.to, write.offset, {from, write.from.size()}));
  }
  if (border.reads.empty()) return {};
  std::vector<std::span<const std::byte>> landed;
  for (const Border::Read& read : border.reads) {
    std::byte* const to = TakeRoom(read.to.size());
    TRY_STATUS(QueueCopyFrom(device_.backend(), read.from, read.offset, {to, read.to.size()}));
    landed.emplace_back(to, read.to.size());
  }
  TRY_STATUS(Finish());
  for (size_t i = 0; i < landed.size(); ++i) {
    std::ranges::copy(landed[i], border.reads[i].to.begin());
  }
  return {};
}

Status DeviceLink::CrossDirectly(const Border& border) {
  for (const Border::Write& write : border.writes) {
    TRY_STATUS(CopyTo(write.to, write.offset, write.from));
  }
  if (border.reads.empty()) return {};
  TRY_STATUS(Finish());
  for (const Border::Read& read : border.reads) {
    TRY_STATUS(CopyFrom(read.from, read.offset, read.to));
  }
  return {};
}

}  // namespace moestro
