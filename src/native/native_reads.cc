// SPDX-License-Identifier: MIT
// What the disk gives, and how many reads it is given at a time.
#include <algorithm>
#include <ranges>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"
#include "native/catalog.h"
#include "native/native_impl.h"
#include "native/plan/io_depth.h"
#include "store/probe.h"

namespace moestro {
namespace {

// Of each depth: a round reads so much, or for so long. Where others use the disk, too, one round
// may well find that more reads help; two seldom do.
constexpr int kRounds = 2;
constexpr uint64_t kBytesOfARound = 32 * kMiB;
constexpr double kSecondsOfARound = 0.05;

}  // namespace

Result<PlannedMemory> NativeEngine::Impl::PlanSlots(const FixedBytes& fixed) {
  const auto plan = [&] {
    return PlanMemory(options, catalog, reader->block(), model.spec.router.n_used, fixed);
  };
  if (options.io_depth > 0) return plan();
  options.io_depth = kIoDepths.front();
  TRY(PlannedMemory usual, plan());
  // Where nothing is read while a text is written, or so little, the depth is worth no measurement.
  const bool reads_much = usual.plan.n_slots < usual.plan.n_experts &&
                          catalog.total_bytes() >= kRounds * kBytesOfARound;
  if (!reads_much) return usual;
  options.io_depth = MeasureIoDepth();
  Result<PlannedMemory> planned = plan();
  if (planned) return planned;
  options.io_depth = kIoDepths.front();  // more takes memory that this budget does not have
  return usual;
}

// Memory is empty yet, and no read is under way.
uint32_t NativeEngine::Impl::MeasureIoDepth() const {
  const std::vector<Extent> matrices = OwnSlices(catalog);
  uint32_t fewest = kIoDepths.back();
  uint64_t seed = 0;
  for (int round = 0; round < kRounds && fewest > kIoDepths.front(); ++round) {
    std::vector<DepthSpeed> measured;
    // The first reads of a file find the way to its blocks; that must not speak for more of them.
    for (const uint32_t depth : std::views::reverse(kIoDepths)) {
      const Result<BandwidthProbe> probe = ProbeBandwidth(*reader, matrices,
                                                          {.reads = {.max_in_flight = depth},
                                                           .total = kBytesOfARound,
                                                           .most_seconds = kSecondsOfARound,
                                                           .seed = ++seed});
      if (!probe) {  // the step that needs what cannot be read will say so
        LogInfo("{}; the disk gets {} reads at a time", probe.error().message, kIoDepths.front());
        return kIoDepths.front();
      }
      measured.push_back({.depth = depth, .bytes_per_second = probe->bytes_per_second});
    }
    fewest = std::min(fewest, FewestThatFill(measured));
  }
  return fewest;
}

Result<double> NativeEngine::Impl::ProbeReads(uint64_t total) {
  // A prefill may leave reads under way that no step waited for; the probe would meet their
  // results.
  residency->Settle();
  TRY(const BandwidthProbe probe,
      ProbeBandwidth(*reader, OwnSlices(catalog), {.reads = queue->options(), .total = total}));
  return probe.bytes_per_second;
}

Result<double> NativeEngine::ProbeDiskBandwidth() {
  return impl_->ProbeReads(ProbeOptions().total);
}

}  // namespace moestro
