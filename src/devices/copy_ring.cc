// SPDX-License-Identifier: MIT
#include "devices/copy_ring.h"

#include <algorithm>
#include <utility>

#include "base/result.h"

namespace moestro {
namespace {

// A second backend of the device, and an event for each piece.
struct CopyLane {
  BackendPtr backend;
  std::array<EventPtr, CopyRing::kPieces> events;  // before the backend in destruction
};

}  // namespace

Result<std::unique_ptr<CopyRing>> CopyRing::Create(const ComputeDevice& device) {
  TRY(HostMemory memory, AllocatePinned(device, kBytes));
  memory.Populate(0, kBytes);
  const auto lane = std::make_shared<CopyLane>();
  for (EventPtr& event : lane->events) {
    event = MakeEvent(device.handle());
    if (!event) {
      return Fail(Errc::kDevice, "the device {} has no events", device.info().name);
    }
  }
  TRY(lane->backend, StartBackend(device.info().name));
  return std::make_unique<CopyRing>(
      std::move(memory),
      Driver{.send = [lane](ggml_tensor* tensor, uint64_t offset, std::span<const std::byte> bytes,
                            size_t piece) -> Status {
               TRY_STATUS(QueueCopyTo(lane->backend.get(), tensor, offset, bytes));
               return RecordEvent(lane->backend.get(), lane->events[piece].get());
             },
             .await = [lane](size_t piece) { return AwaitEvent(lane->events[piece].get()); },
             .drain = [lane] { return WaitFor(lane->backend.get()); }});
}

// Ends all copies under way after an error of the driver. If the driver can still wait for them,
// they have landed.
std::unexpected<Error> CopyRing::Broke(const Error& why) {
  if (!driver_.drain()) {
    // Copies between two losses count as lost while the first loss is not told.
    if (n_awaited_ >= lost_to_) lost_from_ = n_landed_;
    lost_to_ = n_sent_;
  }
  n_landed_ = n_sent_;
  return std::unexpected(why);
}

Status CopyRing::LandNext() {
  const Status landed = driver_.await(n_landed_ % kPieces);
  if (!landed) return Broke(landed.error());
  ++n_landed_;
  return {};
}

// Sends one piece, after the piece before it in the same place has landed.
Status CopyRing::Send(ggml_tensor* tensor, uint64_t offset, std::span<const std::byte> bytes,
                      bool is_pinned) {
  if (n_sent_ - n_landed_ == kPieces) TRY_STATUS(LandNext());
  const size_t piece = n_sent_ % kPieces;
  if (!is_pinned) {
    std::byte* const to = memory_.data() + piece * kPieceBytes;
    std::ranges::copy(bytes, to);
    bytes = {to, bytes.size()};
  }
  const Status sent = driver_.send(tensor, offset, bytes, piece);
  if (!sent) return Broke(sent.error());
  ++n_sent_;
  return {};
}

Result<uint64_t> CopyRing::Begin(ggml_tensor* tensor, uint64_t offset,
                                 std::span<const std::byte> bytes, bool is_pinned) {
  const uint64_t most = is_pinned ? bytes.size() : kPieceBytes;
  while (!bytes.empty()) {
    const uint64_t n = std::min<uint64_t>(most, bytes.size());
    TRY_STATUS(Send(tensor, offset, bytes.first(n), is_pinned));
    offset += n;
    bytes = bytes.subspan(n);
  }
  return n_sent_;
}

Status CopyRing::Await(uint64_t number) {
  n_awaited_ = number;
  while (n_landed_ < number) TRY_STATUS(LandNext());
  if (number <= lost_from_ || number > lost_to_) return {};
  return Fail(Errc::kDevice, "a copy to the device was lost");
}

}  // namespace moestro
