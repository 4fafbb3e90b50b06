// SPDX-License-Identifier: MIT
#include "store/probe.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <random>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/number.h"
#include "store/open_files.h"

namespace moestro {
namespace {

struct Target {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
};

// The regions cut into requests, without storing the list: a large model has millions.
class Cuts {
 public:
  Cuts(std::span<const Extent> regions, uint64_t max_request, uint64_t block) {
    for (const Extent& region : regions) {
      if (region.length == 0) continue;
      const Window window = CoveringWindow(region, block);
      const uint64_t part = PartBytes(window.length, max_request, block);
      windows_.push_back({{region.file, window.offset, window.length}, part});
      count_ += (window.length + part - 1) / part;
      ends_.push_back(count_);
      bytes_ += window.length;
      largest_ = std::max(largest_, part);
    }
  }
  uint64_t count() const { return count_; }
  uint64_t bytes() const { return bytes_; }      // of all
  uint64_t largest() const { return largest_; }  // bytes of one
  Target at(uint64_t n) const {
    const auto end = std::ranges::upper_bound(ends_, n);
    const auto& [window, part] = windows_[static_cast<size_t>(end - ends_.begin())];
    const uint64_t first = end == ends_.begin() ? 0 : *(end - 1);
    const uint64_t begin = (n - first) * part;
    return {window.file, window.offset + begin, std::min(part, window.length - begin)};
  }

 private:
  struct Whole {
    Target window;
    uint64_t part = 0;  // bytes of each request but the last
  };
  uint64_t count_ = 0;
  uint64_t bytes_ = 0;
  uint64_t largest_ = 0;
  std::vector<Whole> windows_;
  std::vector<uint64_t> ends_;  // running sums of each window's numbers
};

// Draws `wanted` different numbers below `count` in random order (Floyd's sampling, then a
// shuffle).
std::vector<uint64_t> Sample(uint64_t count, uint64_t wanted, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::unordered_set<uint64_t> seen;
  std::vector<uint64_t> sample;
  for (uint64_t limit = count - wanted; limit < count; ++limit) {
    const uint64_t drawn = std::uniform_int_distribution<uint64_t>(0, limit)(random);
    sample.push_back(seen.insert(drawn).second ? drawn : limit);
    seen.insert(sample.back());
  }
  std::ranges::shuffle(sample, random);
  return sample;
}

using Memory = std::unique_ptr<std::byte, decltype(&std::free)>;

// Huge pages, like the memory that real reads land in: with small ones the same disk gives half.
Memory AllocateLanding(uint64_t size, uint64_t block) {
  constexpr uint64_t kHugePage = 2 * kMiB;
  const uint64_t alignment = size >= kHugePage ? std::max(kHugePage, block) : block;
  const uint64_t capacity = AlignUp(size, alignment);
  Memory memory{static_cast<std::byte*>(std::aligned_alloc(alignment, capacity)), &std::free};
  if (!memory) return memory;
  // Advice: failing costs speed only.
  if (alignment >= kHugePage) ::madvise(memory.get(), capacity, MADV_HUGEPAGE);
  std::fill_n(memory.get(), size, std::byte{0});  // page faults must not be timed
  return memory;
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Reads the targets, `depth` at a time, beginning none after `most_seconds` but the first; returns
// the bytes that arrived.
Result<uint64_t> ReadAll(BlockReader& reader, std::span<const Target> targets, unsigned depth,
                         std::span<std::byte> memory, double most_seconds) {
  const auto start = std::chrono::steady_clock::now();
  const uint64_t each = memory.size() / depth;
  std::vector<uint64_t> free;
  for (uint64_t i = 0; i < depth; ++i) free.push_back(i);
  std::vector<BlockDone> results(depth);
  uint64_t bytes = 0;
  int error = 0;
  size_t next = 0;
  for (;;) {
    if (next > 0 && SecondsSince(start) > most_seconds) targets = targets.first(next);
    while (next < targets.size() && !free.empty() && error == 0) {
      const Target& t = targets[next];
      const uint64_t place = free.back();
      const std::span to = memory.subspan(place * each, t.length);
      if (!reader.Submit({.file = t.file, .offset = t.offset, .to = to, .tag = place})) break;
      free.pop_back();
      ++next;
    }
    if (free.size() == depth) break;
    const size_t n = reader.Wait(results);
    for (const BlockDone& done : std::span(results).first(n)) {
      bytes += done.bytes;
      if (done.error != 0) error = done.error;
      free.push_back(done.tag);
    }
  }
  if (error != 0) return Fail(Errc::kIo, "disk bandwidth probe: {}", ErrnoText(error));
  return bytes;
}

}  // namespace

Result<BandwidthProbe> ProbeBandwidth(BlockReader& reader, std::span<const Extent> regions,
                                      const ProbeOptions& options) {
  const uint64_t block = reader.block();
  const ReadQueueOptions reads = ForReader(options.reads, block);
  const Cuts cuts(regions, reads.max_request, block);
  if (cuts.count() == 0) {
    return Fail(Errc::kInvalidRequest, "disk bandwidth probe: there is nothing to read");
  }
  const uint64_t mean = std::max<uint64_t>(cuts.bytes() / cuts.count(), 1);
  const uint64_t wanted = std::clamp<uint64_t>(options.total / mean, 1, cuts.count());
  std::vector<Target> targets;
  for (const uint64_t n : Sample(cuts.count(), wanted, options.seed)) targets.push_back(cuts.at(n));

  const unsigned depth = reads.max_in_flight;
  const uint64_t bytes_in_flight = cuts.largest() * depth;
  const Memory memory = AllocateLanding(bytes_in_flight, block);
  if (!memory) {
    return Fail(Errc::kNoMemory, "disk bandwidth probe: no memory for {}",
                FormatBytes(bytes_in_flight));
  }
  const std::span<std::byte> landing(memory.get(), bytes_in_flight);

  const auto start = std::chrono::steady_clock::now();
  TRY(const uint64_t bytes, ReadAll(reader, targets, depth, landing, options.most_seconds));
  const double took = SecondsSince(start);
  if (bytes == 0) return Fail(Errc::kIo, "disk bandwidth probe: the file has no bytes there");
  const double seconds = std::max(took, 1e-9);
  return BandwidthProbe{
      .bytes_per_second = static_cast<double>(bytes) / seconds, .bytes = bytes, .seconds = seconds};
}

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
