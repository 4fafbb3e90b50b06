// SPDX-License-Identifier: MIT
#include "forward/experts/device_side.h"

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
  host_ratio_ = tracker_.Ratio(Lane::kHost);
  device_ratio_ = tracker_.Ratio(Lane::kDevice);
}

void DeviceSide::Assign(LayerPlan& plan) { plan.predicted = predicted_ = tier_.Assign(plan); }

void DeviceSide::Done(LayerPlan& plan, const ExpertExec::LaneSeconds& took) {
  plan.took = {.host = took.host, .device = took.device};
  failures_ = 0;
  tier_.Done(plan);
  Observe(took);
  Promote(plan);
}

// What the lanes took against what their costs said before any refit. A layer that waited for the
// disk or for copies says nothing about computing.
void DeviceSide::Observe(const ExpertExec::LaneSeconds& took) {
  if (predicted_.disk > 0.0) return;
  if (predicted_.host > 0.0) {
    tracker_.Observe(Lane::kHost, predicted_.host / host_ratio_, took.host);
  }
  if (predicted_.copy > 0.0 || predicted_.device <= 0.0) return;
  // Its results are fetched when the CPU is done; only a device that ends later shows how long it
  // took.
  if (took.device < 1.05 * took.host) return;
  tracker_.Observe(Lane::kDevice, predicted_.device / device_ratio_, took.device);
}

void DeviceSide::Promote(const LayerPlan& plan) {
  const std::optional<DeviceTier::Promotion> promotion = tier_.Promote(plan);
  if (!promotion) return;
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
