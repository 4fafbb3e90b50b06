// SPDX-License-Identifier: MIT
#include "store/reads_beside.h"

#include <exception>
#include <utility>

#include "store/probe.h"

namespace moestro {

ReadsBeside::ReadsBeside(Open open, std::vector<Extent> regions, const ReadQueueOptions& reads)
    : open_(std::move(open)),
      regions_(std::move(regions)),
      reads_(reads),
      thread_([this](const std::stop_token& stop) { Read(stop); }) {}

// Only a lack of memory throws here.
void ReadsBeside::Read(const std::stop_token& stop) {
  try {
    if (Status read = ReadUntil(stop); !read) error_ = std::move(read).error();
  } catch (const std::exception& thrown) {
    error_ = Error{.code = Errc::kNoMemory, .message = thrown.what()};
  }
}

Status ReadsBeside::ReadUntil(const std::stop_token& stop) {
  constexpr double kSecondsOfARound = 0.1;
  TRY(const std::unique_ptr<BlockReader> reader, open_());
  uint64_t round = 0;
  do {
    TRY(const BandwidthProbe probe,
        ProbeBandwidth(*reader, regions_,
                       {.reads = reads_, .most_seconds = kSecondsOfARound, .seed = ++round}));
    bytes_ += probe.bytes;
    seconds_ += probe.seconds;
  } while (!stop.stop_requested());
  return {};
}

Result<double> ReadsBeside::Stop() {
  thread_.request_stop();
  thread_.join();
  if (error_) return std::unexpected(*error_);
  return seconds_ > 0.0 ? static_cast<double>(bytes_) / seconds_ : 0.0;
}

}  // namespace moestro
