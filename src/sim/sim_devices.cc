// SPDX-License-Identifier: MIT
#include "sim/sim_devices.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "base/result.h"
#include "decide/slots/resident_model.h"

namespace moestro {
namespace {

// Experts that are read while others are copied, when devices are filled (kReadAhead of
// native/make_slots.cc).
constexpr size_t kReadAhead = 4;

std::vector<uint64_t> BytesOfPools(const SimPools& pools) {
  std::vector<uint64_t> bytes;
  for (uint32_t p = 0; p < pools.size(); ++p) {
    bytes.push_back(static_cast<uint64_t>(std::llround(pools.expert_bytes(p))));
  }
  return bytes;
}

// Parts of the tier. Plans use the experts that memory would hold if every read were done at once,
// as in an engine whose costs are given.
DeviceTierSetup PartsOf(SimTables& tables, const LaneMachine& lanes, const MoeShape& shape,
                        SimMemory& memory, const SimPools& pools) {
  const auto pool_of = [&pools](ExpertKey key) { return pools.of(key); };
  return {.tables = std::move(tables.devices),
          .form_of = [](ExpertKey key) { return uint32_t{key.copy}; },
          .bytes_of = [bytes = BytesOfPools(pools),
                       &pools](ExpertKey key) { return bytes[pools.of(key)]; },
          .in_memory = {},
          .memory_slots = memory.slots(),
          .pool_of = pool_of,
          .n_expert = shape.n_expert,
          .n_layers = shape.n_layer,
          .first_layer = shape.n_encoder,
          .memory = ResidentModel(std::move(tables.model), pool_of),
          .tiers = tables.tiers,
          .drop = [&memory](ExpertKey key) { memory.Drop(key); },
          .memory_room = {},
          .is_settled = lanes.is_settled,
          .usual_share = shape.usual_share(),
          .popularity = lanes.popularity,
          // Rows stay on the first device where leaving it has a price.
          .runs_layers = lanes.model.border > 0.0};
}

}  // namespace

SimDevices::SimDevices(const LaneMachine& lanes, SimTables tables, const MoeShape& shape,
                       SimMemory& memory, const SimPools& pools, Machine& machine)
    : lanes_(lanes),
      memory_(memory),
      pools_(pools),
      machine_(machine),
      bytes_(BytesOfPools(pools)),
      tier_(PartsOf(tables, lanes, shape, memory, pools), lanes.model, lanes.mode),
      backlog_(lanes.model.devices.size()),
      copied_(lanes.model.devices.size()) {
  for (LanePhase* phase : {&result_.decode, &result_.prefill, &uncounted_}) {
    phase->devices.resize(backlog_.size());
    phase->lanes.devices.resize(backlog_.size());
  }
  for (uint32_t d = 0; d < tables.settled.size(); ++d) {
    if (tables.settled[d].empty()) continue;
    for (const auto& one : tier_.Settle(d, tables.settled[d])) tier_.Settled(one, true);
  }
  for (const DeviceTier::Promotion& one : tier_.Fill(lanes.first)) tier_.Promoted(one, true);
}

void SimDevices::BeginStep(size_t tokens, bool decodes, bool counts) {
  phase_ = !counts ? &uncounted_ : decodes ? &result_.decode : &result_.prefill;
  phase_->tokens += tokens;
  ++phase_->steps;
  busiest_ = 0.0;
  machine_.ForgetDone();
  const double before = machine_.now();
  step_bytes_ = machine_.bytes_read();
  if (!backlog_.empty()) machine_.Idle(std::ranges::max(backlog_));
  std::ranges::fill(backlog_, 0.0);
  for (const UnderWay& one : promotions_) {
    memory_.Finish(one.asked);
    tier_.Promoted(one.promotion, true);
  }
  promotions_.clear();
  phase_->seconds += machine_.now() - before;
  if (decodes) FillByUses();
  tier_.FindWhole();
  step_began_ = machine_.now();
}

void SimDevices::EndStep() {
  phase_->seconds += machine_.now() - step_began_;
  phase_->disk_bytes += static_cast<uint64_t>(std::llround(machine_.bytes_read() - step_bytes_));
}

// Experts that memory lacks pass through slots of it. The first token waits, so the time is the
// prompt's.
void SimDevices::FillByUses() {
  const std::vector<DeviceTier::Promotion> wanted = tier_.FillByUses();
  const double before = machine_.now();
  const double bytes = machine_.bytes_read();
  std::deque<Asked> reading;
  size_t next = 0;
  for (const DeviceTier::Promotion& one : wanted) {
    while (next < wanted.size() && reading.size() < kReadAhead) {
      std::optional<Asked> asked =
          memory_.Ask({.key = wanted[next].key, .use = Use::kPrefetch, .n_pairs = 1},
                      SimMemory::Reading::kUrgent);
      if (!asked) break;
      reading.push_back(*std::move(asked));
      ++next;
    }
    CHECK(!reading.empty());  // between steps every slot is free
    const Asked asked = std::move(reading.front());
    reading.pop_front();
    WaitFor(asked.reads);
    machine_.Idle(lanes_.model.devices[one.device].copy.Seconds(BytesOf(one.key)));
    result_.prefill.copy_bytes += BytesOf(one.key);
    memory_.Finish(asked);
    if (asked.placed.was != Placement::Was::kReady) memory_.Drop(one.key);
    tier_.Promoted(one, true);
  }
  const double read = machine_.bytes_read() - bytes;
  step_bytes_ += read;
  result_.prefill.disk_bytes += static_cast<uint64_t>(std::llround(read));
  result_.prefill.seconds += machine_.now() - before;
}

void SimDevices::WaitFor(std::span<const Machine::Ticket> reads) {
  while (!memory_.has_all(reads)) machine_.Wait();
}

double SimDevices::DenseSeconds(size_t rows) const {
  return lanes_.dense.Seconds(lanes_.dense_bytes, static_cast<uint32_t>(rows));
}

void SimDevices::DenseDone(double seconds) {
  phase_->dense_seconds += seconds;
  busiest_ += seconds;
  for (double& left : backlog_) left = std::max(0.0, left - seconds);
}

void SimDevices::Assign(LayerPlan& plan) {
  CountWhere(plan);
  plan.predicted = tier_.Assign(plan);
  std::vector<ExpertKey> own;
  for (const PlannedExpert& expert : plan.experts) own.push_back(expert.key);
  for (const MovedExpert& one : plan.moved_back) MoveBack(one.key, one.device, own);
  began_ = machine_.now();
  times_ = {.devices = std::vector<LaneTimes::Device>(backlog_.size())};
  std::ranges::fill(copied_, 0.0);
  host_busy_ = 0.0;
  const auto on_host = [](const PlannedExpert& e) { return e.place == Place::kHost; };
  uses_host_ = std::ranges::any_of(plan.experts, on_host);
  const bool uses_device = !std::ranges::all_of(plan.experts, on_host);
  const auto leaves = [](const PlannedExpert& e) {
    return e.place == Place::kHost || e.device != 0;
  };
  const bool leaves_first = std::ranges::any_of(plan.experts, leaves);
  if (leaves_first) times_.border = lanes_.model.BorderSeconds(plan.row_of.size());
  host_factor_ = uses_device ? lanes_.model.host_beside : 1.0;
  for (const PlannedExpert& expert : plan.experts) {
    if (expert.place != Place::kDevice) continue;
    const DeviceCosts& costs = lanes_.model.devices[expert.device];
    double& compute = times_.devices[expert.device].compute;
    if (compute == 0.0 && !tier_.whole().has(plan.layer)) compute = costs.launch;
    compute += lanes_.model.OnDevice(expert.device, BytesOf(expert.key), expert.n_pairs);
  }
  times_.calls = plan.predicted.calls;
  if (times_.calls <= 0.0) return;
  machine_.Compute(times_.calls, Machine::Reads::kMove);
  host_busy_ += times_.calls;
}

// Seconds from the layer's begin until the last of the reads was done; 0: before the layer.
double SimDevices::LandedAt(std::span<const Machine::Ticket> reads) {
  double landed = 0.0;
  for (const Machine::Ticket read : reads) {
    landed = std::max(landed, machine_.DoneAt(read) - began_);
  }
  times_.disk = std::max(times_.disk, landed);
  return landed;
}

void SimDevices::ComputeOnHost(const Asked& asked) {
  LandedAt(asked.reads);
  const double seconds =
      host_factor_ * lanes_.model.host.Seconds(BytesOf(asked.expert.key), asked.expert.n_pairs);
  machine_.Compute(seconds, Machine::Reads::kMove);
  host_busy_ += seconds;
  times_.host = machine_.now() - began_;
}

void SimDevices::Copy(const Asked& asked) {
  const uint32_t d = asked.expert.device;
  const DeviceCosts& costs = lanes_.model.devices[d];
  const uint64_t bytes = BytesOf(asked.expert.key);
  double& copy = times_.devices[d].copy;
  copy = std::max(copy, LandedAt(asked.reads));
  copy += (uses_host_ ? costs.copy_beside : 1.0) * costs.copy.Seconds(bytes);
  copied_[d] += lanes_.model.OnDevice(d, bytes, asked.expert.n_pairs);
}

void SimDevices::WaitForCopies(uint32_t device) {
  machine_.Idle(began_ + backlog_[device] + times_.devices[device].copy - machine_.now());
}

void SimDevices::Done(LayerPlan& plan) {
  const double on_host = machine_.now() - began_;
  double seconds = on_host;
  double busiest = host_busy_;
  for (size_t d = 0; d < copied_.size(); ++d) {
    LaneTimes::Device& its = times_.devices[d];
    double busy = its.compute;
    if (copied_[d] > 0.0) {
      busy += lanes_.model.devices[d].launch + copied_[d];
      its.compute = std::max(its.compute, its.copy) + lanes_.model.devices[d].launch + copied_[d];
    }
    const double waits = its.copy > 0.0 ? std::exchange(backlog_[d], 0.0) : 0.0;
    seconds = std::max(seconds, its.compute + waits);
    busiest = std::max(busiest, busy);
  }
  seconds += times_.border;
  machine_.Idle(seconds - on_host);
  for (double& left : backlog_) left = std::max(0.0, left - seconds);
  busiest_ += busiest;
  plan.took = times_;
  tier_.Done(plan);
  CountWork(plan);
  Promote(plan);
}

void SimDevices::Promote(const LayerPlan& plan) {
  const std::optional<DeviceTier::Promotion> promotion = tier_.Promote(plan);
  if (!promotion) return;
  const uint32_t d = promotion->device;
  if (promotion->moved_back) MoveBack(*promotion->moved_back, d, {&promotion->key, 1});
  const uint64_t bytes = BytesOf(promotion->key);
  ++phase_->promoted;
  phase_->copy_bytes += bytes;
  ++phase_->devices[d].promoted;
  phase_->devices[d].copy_bytes += bytes;
  std::optional<Asked> asked = memory_.Ask(
      {.key = promotion->key, .use = Use::kPrefetch, .n_pairs = 1}, SimMemory::Reading::kUrgent);
  if (!asked) {
    tier_.Promoted(*promotion, false);
    return;
  }
  WaitFor(asked->reads);  // reads ahead may have evicted the expert
  promotions_.push_back({.promotion = *promotion, .asked = *std::move(asked)});
  backlog_[d] += lanes_.model.devices[d].copy.Seconds(bytes);
}

// Moves an expert back to memory. All lanes wait for the copy.
void SimDevices::MoveBack(ExpertKey key, uint32_t device, std::span<const ExpertKey> keeps) {
  memory_.Adopt(key, keeps);
  const uint64_t bytes = BytesOf(key);
  machine_.Idle(lanes_.model.devices[device].copy.Seconds(bytes));
  phase_->copy_bytes += bytes;
  ++phase_->moved_back;
  phase_->devices[device].copy_bytes += bytes;
  ++phase_->devices[device].moved_back;
}

// Counts the places of the plan's experts. Call before any expert moves.
void SimDevices::CountWhere(const LayerPlan& plan) {
  for (const PlannedExpert& expert : plan.experts) {
    const bool is_there = tier_.contains(expert.key);
    const bool is_here = memory_.has(expert.key);
    ++phase_->experts;
    phase_->in_device += is_there;
    phase_->in_memory += !is_there && is_here;
    phase_->on_disk += !is_there && !is_here;
  }
}

void SimDevices::CountWork(const LayerPlan& plan) {
  for (const PlannedExpert& expert : plan.experts) {
    const uint64_t bytes = BytesOf(expert.key);
    if (expert.place == Place::kHost) {
      ++phase_->on_host;
      phase_->host_bytes += bytes;
      continue;
    }
    const bool is_copied = expert.place == Place::kCopied;
    LanePhase::Device& its = phase_->devices[expert.device];
    ++(is_copied ? phase_->copied : phase_->ran_there);
    ++(is_copied ? its.copied : its.ran_there);
    phase_->device_bytes += bytes;
    its.bytes += bytes;
    if (!is_copied) continue;
    phase_->staged += expert.is_staged;
    its.staged += expert.is_staged;
    phase_->copy_bytes += bytes;
    its.copy_bytes += bytes;
  }
  LaneTimes& lanes = phase_->lanes;
  lanes.host += times_.host;
  lanes.disk += times_.disk;
  for (size_t d = 0; d < times_.devices.size(); ++d) {
    lanes.devices[d].compute += times_.devices[d].compute;
    lanes.devices[d].copy += times_.devices[d].copy;
  }
}

}  // namespace moestro
