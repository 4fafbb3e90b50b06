// SPDX-License-Identifier: MIT
#include "devices/device_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/number.h"
#include "base/terminal.h"
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

DeviceLink::DeviceLink(const ComputeDevice& device, double patience)
    : device_(device), watch_(patience, [&device, patience] {
        LogWarning(
            "{} has not answered for {:.0f} s; unless its driver resets it, end the program "
            "and use --device none",
            device.info().name, patience);
      }) {
  Result<HostMemory> ring = AllocatePinned(device, kRing);
  if (!ring) return;
  std::memset(ring->data(), 0, kRing);
  if (is_cached(*ring)) ring_ = *std::move(ring);
}

Status DeviceLink::Launch(ggml_cgraph* graph) {
  ++traffic_.launches;
  is_idle_ = false;
  return Settled(LaunchOn(device_.backend(), graph));
}

// After an error nothing may be under way: the caller frees the memory of copies and launches.
Status DeviceLink::Settled(Status status) {
  if (status) return {};
  [[maybe_unused]] const Status ended = Wait();
  if (queued_.empty()) return status;
  lost_from_ = n_landed_;
  lost_to_ = n_landed_ += queued_.size();
  queued_.clear();
  return status;
}

Status DeviceLink::Finish() {
  if (is_idle_ && queued_.empty()) return {};
  ++traffic_.waits;
  TRY_STATUS(Settled(Wait()));
  while (!queued_.empty()) {
    TRY_STATUS(Settled(LandFirst()));
    queued_.pop_front();
    ++n_landed_;
  }
  is_idle_ = true;
  used_ = 0;  // no copy reads the ring any more
  return {};
}

Result<uint64_t> DeviceLink::QueueReads(std::vector<Border::Read> reads, bool lands_alone) {
  Queued queued{.reads = std::move(reads), .from = {}, .event = {}};
  TRY_STATUS(Settled(Queue(queued, lands_alone)));
  queued_.push_back(std::move(queued));
  return n_landed_ + queued_.size() - 1;
}

// Sends the copies, if the ring has room, and marks their end.
Status DeviceLink::Queue(Queued& queued, bool lands_alone) {
  uint64_t bytes = 0;
  for (const Border::Read& read : queued.reads) {
    bytes += RingBytes(read.to.size());
    traffic_.bytes_back += read.to.size();
  }
  traffic_.reads += queued.reads.size();
  is_idle_ = false;
  if (used_ + bytes > ring_.size()) return {};
  TRY(queued.from, ReadToRing(queued.reads));
  if (!lands_alone) return {};
  if (spare_events_.empty()) spare_events_.push_back(MakeEvent(device_.handle()));
  queued.event = std::move(spare_events_.back());
  spare_events_.pop_back();
  return queued.event ? RecordEvent(device_.backend(), queued.event.get()) : Status();
}

Status DeviceLink::Land(uint64_t number) {
  while (n_landed_ <= number && !queued_.empty()) {
    Queued& first = queued_.front();
    if (!first.event) return Finish();
    ++traffic_.waits;
    TRY_STATUS(Settled(watch_.During([&] { return AwaitEvent(first.event.get()); })));
    TRY_STATUS(Settled(LandFirst()));
    spare_events_.push_back(std::move(first.event));
    queued_.pop_front();
    ++n_landed_;
  }
  if (number < lost_from_ || number >= lost_to_) return {};
  return Fail(Errc::kDevice, "reads from the device {} were lost", device_.info().name);
}

// Brings the bytes of the first queued reads, which the device has computed.
Status DeviceLink::LandFirst() {
  const Queued& first = queued_.front();
  for (size_t i = 0; i < first.reads.size(); ++i) {
    const Border::Read& read = first.reads[i];
    if (first.from.empty()) {
      TRY_STATUS(CopyFrom(read.from, read.offset, read.to));
    } else {
      std::ranges::copy(std::span(first.from[i], read.to.size()), read.to.begin());
    }
  }
  return {};
}

// Queues reads into the ring, and returns where their bytes will be. REQUIRES: the ring has room.
Result<std::vector<const std::byte*>> DeviceLink::ReadToRing(std::span<const Border::Read> reads) {
  std::vector<const std::byte*> at;
  for (const Border::Read& read : reads) {
    std::byte* const to = TakeRoom(read.to.size());
    TRY_STATUS(QueueCopyFrom(device_.backend(), read.from, read.offset, {to, read.to.size()}));
    at.push_back(to);
  }
  return at;
}

Status DeviceLink::Cross(const Border& border) {
  traffic_.writes += border.writes.size();
  traffic_.reads += border.reads.size();
  for (const Border::Write& write : border.writes) traffic_.bytes_there += write.from.size();
  for (const Border::Read& read : border.reads) traffic_.bytes_back += read.to.size();
  return Settled(border.bytes() <= ring_.size() ? CrossByRing(border) : CrossDirectly(border));
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
  TRY(std::vector<const std::byte*> from, ReadToRing(border.reads));
  queued_.push_back({.reads = border.reads, .from = std::move(from), .event = {}});
  return Finish();
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
