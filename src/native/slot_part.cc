// SPDX-License-Identifier: MIT
#include "native/slot_part.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <ranges>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "engine/plan/io_depth.h"
#include "learned/kept_uses.h"
#include "learned/recall_order.h"
#include "store/probe.h"

namespace moestro {
namespace {

// Rounds of measuring every depth; a round at one depth ends after kBytesOfARound or
// kSecondsOfARound. On a disk with other users one round may well show a gain from more reads; two
// rounds seldom do.
constexpr int kDepthRounds = 2;
constexpr uint64_t kBytesOfARound = 32 * kMiB;
constexpr double kSecondsOfARound = 0.05;
// Parts of memory that become resident one after the other.
constexpr size_t kPopulateSteps = 32;

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

}  // namespace

uint64_t SlotPart::RoomIn(const OpenedModel& opened, const FixedBytes& fixed) {
  EngineOptions options = opened.options;
  if (options.io_depth == 0) options.io_depth = kIoDepths.front();
  const Result<PlannedMemory> planned =
      PlanMemory(options, opened.catalog, opened.reader->block(), FewestSlots(opened), fixed);
  if (!planned) return 0;
  return planned->plan.budget - std::min(planned->plan.smallest, planned->plan.budget);
}

Result<std::unique_ptr<SlotPart>> SlotPart::Create(const OpenedModel& opened, DeviceSetup& devices,
                                                   const FixedBytes& fixed) {
  EngineOptions options = opened.options;
  FixedBytes with_request = fixed;
  TRY(PlannedMemory planned, PlanSlots(opened, with_request, options));
  std::unique_ptr<SlotPart> part(new SlotPart(opened, std::move(planned)));
  part->queue_ = std::make_unique<ReadQueue>(*opened.reader, opened.paths(),
                                             ReadQueueOptions{.max_request = with_request.request,
                                                              .max_in_flight = options.io_depth,
                                                              .max_speculative = options.io_depth});
  TRY(part->policy_, opened.policies.Choose(opened.model.id, part->memory().n_slots));
  TRY_STATUS(part->Allocate(devices));
  return part;
}

// Allocates slots in memory that the first device copies from directly, if its driver gives enough,
// else in plain memory.
Status SlotPart::Allocate(DeviceSetup& devices) {
  const uint64_t staging = devices.staging_slots();
  const auto create = [&](const HostMemorySource& source) -> Result<std::unique_ptr<Residency>> {
    TRY(std::unique_ptr<Residency> made, Residency::Create(opened_.catalog, planned_.slots, policy_,
                                                           *queue_, opened_.options.clock, source));
    if (staging > 0) TRY_STATUS(made->AllocateStaging(staging, source));
    return made;
  };
  if (devices.slot_memory()) {
    Result<std::unique_ptr<Residency>> pinned = create(*devices.slot_memory());
    if (pinned || pinned.error().code != Errc::kNoMemory) {
      TRY(residency_, std::move(pinned));
      return {};
    }
    LogInfo("{}: experts lie in plain memory", pinned.error().message);
    devices.CopyFromPlainMemory();
  }
  TRY(residency_, create({}));
  return {};
}

uint64_t SlotPart::Recall() {
  const ModelId& model = opened_.model.id;
  uses_before_ = KeptUses(opened_.options.recall.folder, model);
  if (uses_before_.empty()) return 0;
  std::vector<SlotTable::Used> order =
      RecallOrder(opened_.catalog, model.shape.n_expert, slots(), uses_before_);
  const uint64_t n = order.size();
  residency_->Recall(std::move(order));
  return n;
}

void SlotPart::KeepUses() const {
  if (residency_->stats().requests == 0) return;
  moestro::KeepUses(opened_.options.recall.folder, opened_.model.id, UsesNow());
}

// Packs the uses of experts in slots. Other experts keep half of the uses from earlier runs.
std::vector<uint8_t> SlotPart::UsesNow() const {
  const MoeShape& shape = opened_.model.id.shape;
  std::vector<uint8_t> packed = uses_before_;
  for (uint8_t& uses : packed) uses = PackUses(UnpackUses(uses) / 2);
  packed.resize(size_t{shape.n_layer} * shape.n_expert);
  for (uint32_t p = 0; p < planned_.slots.size(); ++p) {
    for (const SlotTable::Used& one : residency_->used(p)) {
      if (one.key.copy > 0) continue;
      packed[size_t{one.key.layer.value} * shape.n_expert + one.key.expert.value] =
          PackUses(one.uses);
    }
  }
  return packed;
}

// Makes slots resident in steps, so that a progress bar moves: each thread of the team takes its
// part of every step.
Status SlotPart::Populate(Team& team, const Progress& report) const {
  for (size_t step = 0; step < kPopulateSteps; ++step) {
    report("reserving memory", step, kPopulateSteps);
    residency_->RecallAhead(opened_.options.recall.bytes_at_a_time);
    TRY_STATUS(team.Run([&](int thread, int n_threads) {
      const auto part = step * static_cast<size_t>(n_threads) + static_cast<size_t>(thread);
      residency_->Populate(part, kPopulateSteps * static_cast<size_t>(n_threads));
    }));
  }
  residency_->Drain();
  residency_->RegisterMemory();
  return {};
}

Result<std::unique_ptr<ReadsBeside>> SlotPart::ReadBeside() {
  residency_->Settle();
  TRY(const ReaderKind kind, ParseReaderKind(opened_.options.reader));
  return std::make_unique<ReadsBeside>(
      [kind, paths = opened_.paths()] { return OpenReader({.kind = kind}, paths); },
      OwnSlices(opened_.catalog), queue_->options());
}

}  // namespace moestro
