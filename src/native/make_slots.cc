// SPDX-License-Identifier: MIT
#include "native/make_slots.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <utility>

#include "base/number.h"
#include "base/terminal.h"
#include "engine/plan/io_depth.h"
#include "store/probe.h"

namespace moestro {
namespace {

// Rounds of measuring every depth; a round at one depth ends after kBytesOfARound or
// kSecondsOfARound. On a disk with other users one round may well show a gain from more reads; two
// rounds seldom do.
constexpr int kDepthRounds = 2;
constexpr uint64_t kBytesOfARound = 32 * kMiB;
constexpr double kSecondsOfARound = 0.05;

// Number and size of the reads that the disk gets at a time.
struct IoSizes {
  uint32_t depth = kIoDepths.front();
  uint64_t request = kLeastRequest;
};

// REQUIRES: memory is still empty, and no read is under way.
IoSizes MeasureIoSizes(const OpenedModel& opened) {
  const std::vector<Extent> matrices = OwnSlices(opened.catalog);
  uint32_t fewest = kIoDepths.back();
  std::map<uint32_t, double> fastest;  // by depth
  uint64_t seed = 0;
  for (int round = 0; round < kDepthRounds && fewest > kIoDepths.front(); ++round) {
    std::vector<DepthSpeed> measured;
    // Depths fall: the first reads of a file also load the file system's block lists, and that time
    // must not count against few reads.
    for (const uint32_t depth : std::views::reverse(kIoDepths)) {
      const Result<BandwidthProbe> probe = ProbeBandwidth(*opened.reader, matrices,
                                                          {.reads = {.max_in_flight = depth},
                                                           .total = kBytesOfARound,
                                                           .most_seconds = kSecondsOfARound,
                                                           .seed = ++seed});
      if (!probe) {  // the step that needs the expert reports the error
        LogInfo("{}; the disk gets {} reads at a time", probe.error().message, kIoDepths.front());
        return {};
      }
      fastest[depth] = std::max(fastest[depth], probe->bytes_per_second);
      measured.push_back({.depth = depth, .bytes_per_second = probe->bytes_per_second});
    }
    fewest = std::min(fewest, FewestThatFill(measured));
  }
  return {.depth = fewest, .request = RequestBytes(fastest[fewest], fewest)};
}

// Slots for the experts of a token, by pool.
std::vector<uint64_t> FewestSlots(const OpenedModel& opened) {
  return std::vector<uint64_t>(opened.catalog.pools.size(), opened.model.spec.router.n_used);
}

// The plan before a depth is measured.
Result<PlannedMemory> PlanAtOneDepth(const OpenedModel& opened, const FixedBytes& fixed) {
  EngineOptions options = opened.options;
  if (options.io_depth == 0) options.io_depth = kIoDepths.front();
  return PlanMemory(options, opened.catalog, opened.reader->block(), FewestSlots(opened), fixed);
}

// Sets options.io_depth and fixed.request if the depth is left to a measurement.
Result<PlannedMemory> PlanSlots(const OpenedModel& opened, FixedBytes& fixed,
                                EngineOptions& options) {
  const ExpertCatalog& catalog = opened.catalog;
  const auto plan = [&] {
    return PlanMemory(options, catalog, opened.reader->block(), FewestSlots(opened), fixed);
  };
  if (options.io_depth > 0) return plan();
  options.io_depth = kIoDepths.front();
  TRY(PlannedMemory usual, plan());
  // A measurement of the depth does not pay where decode reads nothing, or little.
  const bool reads_much = usual.plan.n_slots < usual.plan.n_experts &&
                          catalog.total_bytes() >= kDepthRounds * kBytesOfARound;
  if (!reads_much) return usual;
  const IoSizes measured = MeasureIoSizes(opened);
  options.io_depth = measured.depth;
  fixed.request = measured.request;
  Result<PlannedMemory> planned = plan();
  if (planned) return planned;
  options.io_depth = kIoDepths.front();  // more reads take memory that this budget lacks
  fixed.request = kLeastRequest;
  return usual;
}

// Allocates slots in memory that the first device copies from directly, if its driver gives enough,
// else in plain memory.
Status AllocateFor(DeviceSetup& devices, ExpertSlots& slots) {
  const uint64_t staging = devices.staging_slots();
  if (devices.slot_memory()) {
    Status pinned = slots.Allocate(*devices.slot_memory(), staging);
    if (pinned || pinned.error().code != Errc::kNoMemory) return pinned;
    LogInfo("{}: experts lie in plain memory", pinned.error().message);
    devices.CopyFromPlainMemory();
  }
  return slots.Allocate({}, staging);
}

}  // namespace

uint64_t RoomIn(const OpenedModel& opened, const FixedBytes& fixed) {
  const Result<PlannedMemory> planned = PlanAtOneDepth(opened, fixed);
  if (!planned) return 0;
  return planned->plan.budget - std::min(planned->plan.smallest, planned->plan.budget);
}

void ChooseTiers(const OpenedModel& opened, const FixedBytes& fixed, DeviceSetup& devices) {
  if (devices.first_here() == nullptr || opened.options.device.tiers) return;
  const Result<PlannedMemory> planned = PlanAtOneDepth(opened, fixed);
  if (!planned) return;
  devices.SetTiers(TiersFor(planned->plan.n_slots, planned->plan.n_experts));
  FixedBytes with_staging = fixed;
  with_staging.work += devices.staging_bytes();
  if (!PlanAtOneDepth(opened, with_staging)) devices.SetTiers(Tiers::kInclusive);
}

Result<std::unique_ptr<ExpertSlots>> MakeSlots(const OpenedModel& opened, DeviceSetup& devices,
                                               const FixedBytes& fixed) {
  EngineOptions options = opened.options;
  FixedBytes with_request = fixed;
  TRY(PlannedMemory planned, PlanSlots(opened, with_request, options));
  TRY(std::unique_ptr<ExpertSlots> slots,
      ExpertSlots::Create({.id = opened.model.id,
                           .catalog = opened.catalog,
                           .reader = *opened.reader,
                           .options = opened.options,
                           .paths = opened.paths()},
                          std::move(planned), opened.policies,
                          {.max_request = with_request.request,
                           .max_in_flight = options.io_depth,
                           .max_speculative = options.io_depth}));
  TRY_STATUS(AllocateFor(devices, *slots));
  return slots;
}

}  // namespace moestro
