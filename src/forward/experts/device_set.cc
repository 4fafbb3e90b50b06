// SPDX-License-Identifier: MIT
#include "forward/experts/device_set.h"

namespace moestro {

Status DeviceSet::Note(uint32_t device, Status done) {
  if (!done) failed_ = device;
  return done;
}

Status DeviceSet::Begin(const LayerPlan& plan, const ExpertRows& rows, float* results) {
  plan_ = &plan;
  failed_.reset();
  works_.assign(devices_.size(), false);
  for (const PlannedExpert& expert : plan.experts) {
    if (expert.place != Place::kHost) works_[expert.device] = true;
  }
  for (uint32_t d = 0; d < size(); ++d) {
    if (!works_[d]) continue;
    TRY_STATUS(Note(d, devices_[d]->Begin({.plan = plan, .device = d}, rows, results)));
  }
  return {};
}

bool DeviceSet::Bring(size_t index, const Lease& lease) {
  return devices_[plan_->experts[index].device]->Bring(index, lease);
}

Status DeviceSet::Advance() {
  for (uint32_t d = 0; d < size(); ++d) {
    if (works_[d]) TRY_STATUS(Note(d, devices_[d]->Advance()));
  }
  return {};
}

bool DeviceSet::all_launched() const {
  for (uint32_t d = 0; d < size(); ++d) {
    if (works_[d] && !devices_[d]->all_launched()) return false;
  }
  return true;
}

Status DeviceSet::Finish(uint32_t device) {
  if (!works_[device]) return {};
  return Note(device, devices_[device]->Finish());
}

void DeviceSet::Abandon() {
  for (DeviceExperts* device : devices_) device->Abandon();
}

}  // namespace moestro
