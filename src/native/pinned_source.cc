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
#include "compute/backend_buffer.h"
#include "compute/devices.h"
#include "store/open_files.h"

namespace moestro {
namespace {

// Bytes of a trial: enough that plain memory comes in huge pages, as slots do.
constexpr uint64_t kSample = kPinnedTrialBytes / 2;
constexpr uint64_t kRead = kMiB;
constexpr int kReads = 5;
// The most that reads may take relative to reads into plain memory. Slower reads are accepted if
// reading and copying together are faster than from plain memory.
constexpr double kMostSlower = 1.25;

// Seconds for kRead bytes, the least of kReads trials.
struct Trial {
  double read = std::numeric_limits<double>::infinity();  // from the disk to this memory
  double copy = std::numeric_limits<double>::infinity();  // from this memory to the device

  double both() const { return read + copy; }
};

// Seconds of reading the beginning of the first file into `memory`.
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

Status ReadAndCopy(std::span<std::byte> memory, BlockReader& reader, const BackendBuffer& there,
                   Trial& trial) {
  TRY(const double read, ReadInto(memory, reader));
  const auto start = std::chrono::steady_clock::now();
  TRY_STATUS(there.Write(0, memory.first(kRead)));
  const std::chrono::duration<double> copy = std::chrono::steady_clock::now() - start;
  trial = {.read = std::min(trial.read, read), .copy = std::min(trial.copy, copy.count())};
  return {};
}

// Succeeds if reads into pinned memory are about as fast, or faster copies make up for slow reads.
Status Compare(const ComputeDevice& device, const HostMemory& pinned, BlockReader& reader,
               bool may_be_slow) {
  TRY(const HostMemory plain, HostMemory::Allocate(kSample));
  plain.Populate(0, plain.size());
  TRY(const BackendBuffer there, BackendBuffer::On(device.backend(), kRead));
  Trial of_pinned;
  Trial of_plain;
  for (int i = 0; i < kReads; ++i) {
    const uint64_t at = static_cast<uint64_t>(i) * kRead;
    TRY_STATUS(ReadAndCopy(pinned.bytes().subspan(at), reader, there, of_pinned));
    TRY_STATUS(ReadAndCopy(plain.bytes().subspan(at), reader, there, of_plain));
  }
  const double slower = of_pinned.read / of_plain.read;
  if (may_be_slow || slower <= kMostSlower || of_pinned.both() < of_plain.both()) return {};
  return Fail(Errc::kIo, "reads into it take {:.2f} times as long, copies from it {:.2f} times",
              slower, of_pinned.copy / of_plain.copy);
}

Status Try(const ComputeDevice& device, BlockReader* reader, bool may_be_slow) {
  TRY(const HostMemory sample, AllocatePinned(device, kSample));
  sample.Populate(0, sample.size());
  if (!is_cached(sample)) return Fail(Errc::kDevice, "the CPU does not cache it");
  if (reader == nullptr) return {};
  return Compare(device, sample, *reader, may_be_slow);
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
