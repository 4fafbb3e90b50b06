// SPDX-License-Identifier: MIT
#include "native/pinned_source.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <limits>
#include <span>

#include "base/bytes.h"
#include "base/log.h"
#include "device/pinned_memory.h"
#include "store/open_files.h"

namespace moestro {
namespace {

// So large that plain memory comes in huge pages, as slots do.
constexpr uint64_t kSample = kPinnedTrialBytes / 2;
constexpr uint64_t kRead = kMiB;
constexpr int kReads = 5;
// Reads may take so many times as long as into plain memory: a disk that is slower by more costs
// more than copies gain.
constexpr double kMostSlower = 1.25;

// Seconds of reading the beginning of the first file to there.
Result<double> ReadInto(std::span<std::byte> memory, BlockReader& reader) {
  const auto start = std::chrono::steady_clock::now();
  std::array<BlockDone, 1> done;
  if (!reader.Submit({.file = 0, .offset = 0, .to = memory.first(kRead)}) ||
      reader.Wait(done) != 1) {
    return Fail(Errc::kIo, "a busy reader");
  }
  if (done[0].error != 0) return Fail(Errc::kIo, "{}", ErrnoText(done[0].error));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// How many times as long as to plain memory reads take to there.
Result<double> SlowerBy(const HostMemory& pinned, BlockReader& reader) {
  TRY(const HostMemory plain, HostMemory::Allocate(kSample));
  plain.Populate(0, plain.size());
  double to_plain = std::numeric_limits<double>::infinity();
  double to_pinned = to_plain;
  for (int i = 0; i < kReads; ++i) {
    const uint64_t at = static_cast<uint64_t>(i) * kRead;
    TRY(const double there, ReadInto(pinned.bytes().subspan(at), reader));
    TRY(const double here, ReadInto(plain.bytes().subspan(at), reader));
    to_pinned = std::min(to_pinned, there);
    to_plain = std::min(to_plain, here);
  }
  return to_pinned / to_plain;
}

Status Try(const ComputeDevice& device, BlockReader* reader, bool may_be_slow) {
  TRY(const HostMemory sample, AllocatePinned(device, kSample));
  sample.Populate(0, sample.size());
  if (!is_cached(sample)) return Fail(Errc::kDevice, "the CPU does not cache it");
  if (reader == nullptr) return {};
  TRY(const double slower, SlowerBy(sample, *reader));
  if (slower <= kMostSlower || may_be_slow) return {};
  return Fail(Errc::kIo, "reads into it take {:.2f} times as long", slower);
}

}  // namespace

std::optional<HostMemorySource> PinnedSource(const ComputeDevice& device, BlockReader* reader,
                                             bool may_be_slow) {
  const uint64_t most = MostPinned(device);
  if (most == 0) return std::nullopt;
  const Status tried = Try(device, reader, may_be_slow);
  if (!tried) {
    LogInfo("no pinned memory of {} is used: {}", device.info().name, tried.error().message);
    return std::nullopt;
  }
  return HostMemorySource{
      .allocate = [&device](uint64_t bytes) { return AllocatePinned(device, bytes); },
      .most_bytes = most};
}

}  // namespace moestro
