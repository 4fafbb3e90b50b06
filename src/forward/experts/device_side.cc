// SPDX-License-Identifier: MIT
#include "forward/experts/device_side.h"

#include <array>
#include <cstddef>
#include <utility>

#include "base/format.h"

namespace moestro {
namespace {

// Layers that may fail one after another before the device counts as lost.
constexpr uint32_t kMostFailures = 3;

}  // namespace

DeviceSide::DeviceSide(DeviceTier& tier, DeviceExperts& experts, Residency& residency,
                       Options options)
    : tier_(tier),
      experts_(experts),
      residency_(residency),
      options_(std::move(options)),
      measured_(tier.model()) {}

DeviceSide::~DeviceSide() { BeginStep(); }

// They land here and nowhere else, however quick the copies were: what the next step plans must not
// depend on timing.
void DeviceSide::BeginStep() {
  for (UnderWay& one : promotions_) {
    const bool has_landed = experts_.Wait(one.ticket);
    one.lease.reset();
    tier_.Promoted(one.promotion, has_landed);
  }
  promotions_.clear();
  if (options_.is_fixed) return;
  tier_.SetModel(tracker_.Refitted(measured_));
  in_use_ = tracker_.ratios();
}

void DeviceSide::Assign(LayerPlan& plan) {
  plan.predicted = predicted_ = tier_.Assign(plan);
  if (!plan.moved_back.empty()) {
    std::vector<ExpertKey> own;
    for (const PlannedExpert& expert : plan.experts) own.push_back(expert.key);
    for (const MovedExpert& moved : plan.moved_back) MoveBack(moved, own);
  }
  if (options_.is_fixed) return;
  copied_before_ = experts_.copies_made();
  read_before_ = residency_.stats();
}

void DeviceSide::Done(LayerPlan& plan, const ExpertExec::LaneSeconds& took) {
  plan.took = {.host = took.host, .device = took.device};
  failures_ = 0;
  tier_.Done(plan);
  if (!options_.is_fixed) Observe(took);
  Promote(plan);
}

// What the lanes took against what their costs said before any refit. A layer that waited for the
// disk or for copies says nothing about computing.
void DeviceSide::Observe(const ExpertExec::LaneSeconds& took) {
  ObserveCopies(took.host > 0.0);
  ObserveReads();
  const auto at_first = [this](double predicted, Lane lane) {
    return predicted / in_use_[static_cast<size_t>(lane)];
  };
  if (predicted_.disk > 0.0) return;
  if (predicted_.host > 0.0) {
    tracker_.Observe(Lane::kHost, at_first(predicted_.host, Lane::kHost), took.host);
  }
  if (predicted_.copy > 0.0 || predicted_.device <= 0.0) return;
  // Its results are fetched when the CPU is done; only a device that ends later shows how long it
  // took.
  if (took.device <= 0.0 || took.device < 1.05 * took.host) return;
  tracker_.Observe(Lane::kDevice, at_first(predicted_.device, Lane::kDevice), took.device);
}

// By the copier's own clock, and so without what the layer waited for; those for later are copies
// like others.
void DeviceSide::ObserveCopies(bool beside_host) {
  const Copier::Made made = experts_.copies_made().Since(copied_before_);
  if (made.copies == 0) return;
  const double factor = beside_host ? measured_.copy_beside : 1.0;
  const double experts = static_cast<double>(made.copies) / kMatrices;
  const double predicted =
      experts * measured_.copy.base + static_cast<double>(made.bytes) * measured_.copy.per_byte;
  tracker_.Observe(Lane::kCopy, factor * predicted, made.seconds);
}

// A layer whose reads all began with it: then somebody waited for one from the first to the last.
void DeviceSide::ObserveReads() {
  if (predicted_.disk <= 0.0) return;
  const ResidencyStats did = residency_.stats().Since(read_before_);
  if (did.misses == 0 || did.late > 0) return;
  tracker_.Observe(Lane::kDisk, predicted_.disk / in_use_[static_cast<size_t>(Lane::kDisk)],
                   did.demand_seconds);
}

// Before its slot is written. If that fails, the disk still has it.
void DeviceSide::MoveBack(const MovedExpert& moved, std::span<const ExpertKey> keeps) {
  residency_.Adopt(moved.key, keeps, [&](const std::array<std::byte*, kMatrices>& to) {
    return experts_.Fetch(moved.key, moved.slot, to).has_value();
  });
}

void DeviceSide::Promote(const LayerPlan& plan) {
  const std::optional<DeviceTier::Promotion> promotion = tier_.Promote(plan);
  if (!promotion) return;
  if (promotion->moved_back) {
    MoveBack({.key = *promotion->moved_back, .slot = promotion->slot}, {&promotion->key, 1});
  }
  std::optional<Lease> lease = LeaseFor(promotion->key);
  if (!lease || !lease->is_complete()) {
    tier_.Promoted(*promotion, false);
    return;
  }
  const DeviceExperts::Ticket ticket =
      experts_.Fill(promotion->key, promotion->slot, MatricesOf(*lease));
  promotions_.push_back({.promotion = *promotion, .ticket = ticket, .lease = *std::move(lease)});
}

// Of an expert that the CPU has just computed. Something read ahead may have driven it out; where
// plans must not depend on timing it is read again.
std::optional<Lease> DeviceSide::LeaseFor(ExpertKey key) {
  const auto ask = [&] {
    return residency_.TryAcquire(key, Use::kPrefetch, Urgency::kSpeculative);
  };
  std::optional<Lease> lease = ask();
  if (!options_.is_fixed || (lease && lease->is_complete())) return lease;
  residency_.Drain();
  if (lease) return lease;
  lease = ask();
  residency_.Drain();
  return lease;
}

Status DeviceSide::Failed(LayerPlan& plan, const Error& why) {
  tier_.Failed(plan);
  if (why.code != Errc::kDevice || ++failures_ < kMostFailures) return {};
  tier_.TurnOff();
  if (options_.ends_if_lost) {
    return Fail(Errc::kDevice, "the device is lost: {}; without --device the CPU would go on",
                why.message);
  }
  if (options_.lost) options_.lost(Format("{}; the CPU goes on alone", why.message));
  return {};
}

}  // namespace moestro
