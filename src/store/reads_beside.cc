// SPDX-License-Identifier: MIT
#include "store/reads_beside.h"

#include <exception>
#include <utility>

#include "store/probe.h"

namespace moestro {

ReadsBeside::ReadsBeside(std::unique_ptr<BlockReader> reader, std::vector<Extent> regions,
                         const ReadQueueOptions& reads)
    : reader_(std::move(reader)),
      regions_(std::move(regions)),
      reads_(reads),
      thread_([this](const std::stop_token& stop) { Read(stop); }) {}

// What is thrown here is a lack of memory.
void ReadsBeside::Read(const std::stop_token& stop) {
  try {
    ReadUntil(stop);
  } catch (const std::exception& thrown) {
    error_ = Error{.code = Errc::kNoMemory, .message = thrown.what()};
  }
}

void ReadsBeside::ReadUntil(const std::stop_token& stop) {
  constexpr double kSecondsOfARound = 0.1;
  uint64_t round = 0;
  do {
    const Result<BandwidthProbe> probe = ProbeBandwidth(
        *reader_, regions_, {.reads = reads_, .most_seconds = kSecondsOfARound, .seed = ++round});
    if (!probe) {
      error_ = probe.error();
      return;
    }
    bytes_ += probe->bytes;
    seconds_ += probe->seconds;
  } while (!stop.stop_requested());
}

Result<double> ReadsBeside::Stop() {
  thread_.request_stop();
  thread_.join();
  if (error_) return std::unexpected(*error_);
  return seconds_ > 0.0 ? static_cast<double>(bytes_) / seconds_ : 0.0;
}

}  // namespace moestro
