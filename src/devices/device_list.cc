// SPDX-License-Identifier: MIT
#include "devices/device_list.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <deque>
#include <string>
#include <thread>
#include <utility>

#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/work_limit.h"

namespace moestro {
namespace {

// Layers that may fail one after another before a device counts as lost.
constexpr uint32_t kMostFailures = 3;
// Experts that are read while others are copied.
constexpr size_t kReadAhead = 4;
// Rows of a step that decodes, at most.
constexpr uint32_t kFewRows = 16;

}  // namespace

DeviceList::DeviceList(std::vector<Device*> devices, std::unique_ptr<DeviceTier> tier,
                       Residency& residency, Options options)
    : tier_(std::move(tier)),
      devices_(std::move(devices)),
      residency_(residency),
      options_(std::move(options)),
      shares_(size()),
      measured_(tier_->model()),
      tracker_(size()),
      in_use_(tracker_.ratios()),
      copied_before_(size()) {
  CHECK(options_.ends_if_lost.size() == size());
}

DeviceList::~DeviceList() { LandPromotions(); }

void DeviceList::LandPromotions() {
  for (UnderWay& one : promotions_) {
    const bool has_landed = devices_[one.promotion.device]->Wait(one.ticket);
    one.lease.reset();
    tier_->Promoted(one.promotion, has_landed);
  }
  promotions_.clear();
}

// Copies land here and nowhere else, however quick they were: the next step's plans must not depend
// on timing.
Status DeviceList::BeginStep() {
  LandPromotions();
  watches_ = !options_.is_fixed && steps_++ % kStepsToWatch == 1;
  for (uint32_t d = 0; d < size(); ++d) LookAfter(d);
  if (!options_.is_fixed) {
    tier_->SetModel(tracker_.Refitted(measured_));
    in_use_ = tracker_.ratios();
  }
  if (whole_ == nullptr) return {};
  tier_->FindWhole();
  return whole_->Follow(*tier_);
}

// Uses experts that have landed on a device whose experts stay the same. A device that is back has
// lost them, so they are brought again; a lost device is reached again once the tier has been given
// every landed expert.
void DeviceList::LookAfter(uint32_t device) {
  if (shares_[device].empty()) return;
  Transport& transport = devices_[device]->transport();
  const bool was_bringing = transport.is_bringing();
  const std::vector<Transport::Landed> landed = transport.TakeLanded();
  for (const auto& [expert, is_there] : landed) tier_->Settled(expert, is_there);
  if (was_bringing || !landed.empty() || !transport.ComesBack()) return;
  tier_->ComesBack(device);
  const Status brought = transport.BeginToBring(tier_->Settle(device, shares_[device]));
  if (!brought) LogWarning("{}", brought.error().message);
}

Status DeviceList::BringShares(std::vector<std::vector<ExpertKey>> shares) {
  CHECK(shares.size() == size());
  shares_ = std::move(shares);
  for (uint32_t d = 0; d < size(); ++d) {
    if (shares_[d].empty()) continue;
    TRY_STATUS(devices_[d]->transport().BeginToBring(tier_->Settle(d, shares_[d])));
  }
  if (has_fixed_costs()) AwaitShares();
  return {};
}

void DeviceList::AwaitShares() const {
  const auto is_bringing = [](const Device* device) { return device->transport().is_bringing(); };
  while (std::ranges::any_of(devices_, is_bringing)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Status DeviceList::Fill(std::span<const ExpertKey> first, const Progress& report) {
  const std::vector<DeviceTier::Promotion> wanted = tier_->Fill(first);
  TellDivision();
  return Copy(wanted, [] { return true; }, report);
}

// Logs how many layers the first device computes whole, and the reason.
void DeviceList::TellDivision() const {
  const WholeChoice& division = tier_->division();
  if (division.layers == 0) return;
  constexpr double kMs = 1e3;
  LogInfo(
      "{} computes the last {} layers whole: the experts of a token are expected to take {:.2f} "
      "ms, "
      "and {:.2f} with the most used experts of every layer there",
      devices_.front()->info().name, division.layers, kMs * division.seconds,
      kMs * division.without);
}

void DeviceList::FillByUses(StopSignal& stop, bool is_repeatable, const Progress& report) {
  if (!tier_->wants_fill()) return;
  LandPromotions();
  const std::vector<DeviceTier::Promotion> wanted = tier_->FillByUses();
  if (wanted.empty()) return;
  TellDivision();
  const double start = SteadySeconds();
  // A copy that the model's costs have decided on is made however long it takes where plans must
  // not depend on timing.
  const auto goes_on = [&] {
    const bool is_late = SteadySeconds() - start > DeviceTier::kMostFillSeconds;
    return !stop.is_requested() && (is_repeatable || !is_late);
  };
  const Status filled = Copy(wanted, goes_on, report);
  if (!filled) LogWarning("{}; devices are filled no further", filled.error().message);
}

// Copies experts to devices. Experts that memory lacks pass through slots of memory, so the budget
// holds.
Status DeviceList::Copy(std::span<const DeviceTier::Promotion> wanted, const GoesOn& goes_on,
                        const Progress& report) {
  std::deque<Lease> reading;
  Status status;
  size_t next = 0;
  size_t done = 0;
  for (; done < wanted.size() && status && goes_on(); ++done) {
    while (next < wanted.size() && reading.size() < kReadAhead) {
      std::optional<Lease> lease =
          residency_.TryAcquire(wanted[next].key, Use::kPrefetch, Urgency::kDemand);
      if (!lease && reading.empty()) {
        residency_.Drain();  // reads that are no longer wanted have every slot
        lease = residency_.TryAcquire(wanted[next].key, Use::kPrefetch, Urgency::kDemand);
      }
      if (!lease) break;
      reading.push_back(*std::move(lease));
      ++next;
    }
    CHECK(!reading.empty());  // between steps no other leases are out
    while (status && !reading.front().is_complete()) {
      residency_.Wait();
      if (auto error = residency_.TakeError()) status = std::unexpected(*std::move(error));
    }
    if (!status) break;
    const DeviceTier::Promotion& one = wanted[done];
    Device& its = *devices_[one.device];
    const bool has_landed = its.Wait(its.Fill(one.key, one.slot, MatricesOf(reading.front())));
    const bool was_there = reading.front().was() == Placement::Was::kReady;
    reading.pop_front();
    if (!was_there) residency_.Drop(one.key);  // memory is for what devices lack
    tier_->Promoted(one, has_landed);
    report("filling devices", done + 1, wanted.size());
  }
  reading.clear();
  for (; done < wanted.size(); ++done) tier_->Promoted(wanted[done], false);
  if (!status) residency_.Settle();
  return status;
}

void DeviceList::Assign(LayerPlan& plan) {
  plan.predicted = predicted_ = tier_->Assign(plan);
  if (!plan.moved_back.empty()) {
    std::vector<ExpertKey> own;
    for (const PlannedExpert& expert : plan.experts) own.push_back(expert.key);
    for (const MovedExpert& moved : plan.moved_back) MoveBack(moved, own);
  }
  if (options_.is_fixed) return;
  for (uint32_t d = 0; d < size(); ++d) copied_before_[d] = devices_[d]->copies_made();
  read_before_ = residency_.stats();
}

Status DeviceList::Note(uint32_t device, Status done) {
  if (!done) failed_ = device;
  return done;
}

Status DeviceList::Begin(const LayerPlan& plan, const Rows& rows, float* results) {
  plan_ = &plan;
  failed_.reset();
  keeps_results_ = rows.there != nullptr;
  works_.assign(size(), false);
  for (const PlannedExpert& expert : plan.experts) {
    if (expert.place != Place::kHost) works_[expert.device] = true;
  }
  for (uint32_t d = 0; d < size(); ++d) {
    if (!works_[d]) continue;
    const Device::Assignment assignment{.plan = plan, .device = d};
    TRY_STATUS(Note(d, d == 0 && keeps_results_
                           ? devices_[d]->BeginThere(assignment, *rows.there)
                           : devices_[d]->Begin(assignment, rows.ffn_in, results)));
  }
  return {};
}

bool DeviceList::Bring(size_t index, const Lease& lease) {
  return devices_[plan_->experts[index].device]->Bring(index, lease);
}

Status DeviceList::Advance() {
  for (uint32_t d = 0; d < size(); ++d) {
    if (works_[d]) TRY_STATUS(Note(d, devices_[d]->Advance()));
  }
  return {};
}

bool DeviceList::all_launched() const {
  for (uint32_t d = 0; d < size(); ++d) {
    if (works_[d] && !devices_[d]->all_launched()) return false;
  }
  return true;
}

Status DeviceList::Finish(uint32_t device) {
  if (!works_[device]) return {};
  TRY_STATUS(Note(device, devices_[device]->Finish()));
  const bool waits = device == 0 && keeps_results_ && watches_;
  return waits ? Note(device, devices_[device]->Await()) : Status();
}

void DeviceList::Abandon() {
  for (Device* const device : devices_) device->Abandon();
}

void DeviceList::Done(LayerPlan& plan, const LaneSeconds& took) {
  plan.took = {.host = took.host};
  for (const auto& device : took.devices) plan.took.devices.push_back({.compute = device.done});
  for (const PlannedExpert& expert : plan.experts) {
    if (expert.place != Place::kHost) devices_[expert.device]->ForgetFailures();
  }
  tier_->Done(plan);
  if (!options_.is_fixed) Observe(took, plan.n_rows);
  Promote(plan);
}

void DeviceList::DoneWhole(LayerPlan& plan, double seconds) {
  plan.took = {.devices = std::vector<LaneTimes::Device>(size())};
  plan.took.devices.front().compute = seconds;
  devices_.front()->ForgetFailures();
  tier_->Done(plan);
}

// Observes the times of the lanes relative to the times that their costs gave before any refit. A
// layer that waited for the disk or for copies gives no time of computing. The CPU's share of a
// prompt is of another order than that of a token, and does not show the time of its begin.
void DeviceList::Observe(const LaneSeconds& took, uint32_t n_rows) {
  ObserveCopies(took.host > 0.0);
  ObserveReads();
  if (predicted_.disk > 0.0) return;
  if (predicted_.host > 0.0 && n_rows <= kFewRows) {
    tracker_.Observe(
        Lane::kHost,
        (predicted_.host - predicted_.calls - tier_->model().host_begin) / in_use_.host,
        std::max(took.host - took.beginning, 0.0));
  }
  ObserveDevices(took);
}

// Observes devices. Results are collected when the CPU is done, one device after the other.
void DeviceList::ObserveDevices(const LaneSeconds& took) {
  double before = took.host;
  for (uint32_t d = 0; d < took.devices.size(); ++d) {
    const LaneTimes::Device& predicted = predicted_.devices[d];
    const auto [done, collecting] = took.devices[d];
    if (done <= 0.0) continue;
    const double ended_before = std::exchange(before, std::max(before, done));
    if (predicted.copy > 0.0) continue;
    const DeviceCosts& costs = measured_.devices[d];
    const double ratio = in_use_.devices[d].compute;
    tracker_.ObserveDevice({.predicted = predicted.compute / ratio,
                            .before = ended_before,
                            .done = done,
                            .collecting = collecting},
                           std::max(costs.launch, costs.calls), ratio, d);
  }
}

// Observes copies by the copiers' own clocks, and so without the layer's waits. Copies for later
// layers count like others.
void DeviceList::ObserveCopies(bool beside_host) {
  for (uint32_t d = 0; d < size(); ++d) {
    const Copier::Made made = devices_[d]->copies_made() - copied_before_[d];
    if (made.copies == 0) continue;
    const DeviceCosts& costs = measured_.devices[d];
    const double factor = beside_host ? costs.copy_beside : 1.0;
    const double experts =
        static_cast<double>(made.copies) / static_cast<double>(devices_[d]->copies_per_expert());
    const double predicted =
        experts * costs.copy.base + static_cast<double>(made.bytes) * costs.copy.per_byte;
    tracker_.Observe(Lane::kCopy, factor * predicted, made.seconds, d);
  }
}

// Observes the disk in a layer whose reads all began with the layer: then a thread waited for reads
// from the first to the last.
void DeviceList::ObserveReads() {
  if (predicted_.disk <= 0.0) return;
  const ExpertCounts did = residency_.stats() - read_before_;
  if (did.misses == 0 || did.late > 0) return;
  tracker_.Observe(Lane::kDisk, predicted_.disk / in_use_.disk, did.demand_seconds);
}

// Copies an expert back to memory before its slot is written. After a failure the disk still has
// the expert.
void DeviceList::MoveBack(const MovedExpert& moved, std::span<const ExpertKey> keeps) {
  residency_.Adopt(moved.key, keeps, [&](const std::array<std::byte*, kMatrices>& to) {
    return devices_[moved.device]->Fetch(moved.key, moved.slot, to).has_value();
  });
}

void DeviceList::Promote(const LayerPlan& plan) {
  const std::optional<DeviceTier::Promotion> promotion = tier_->Promote(plan);
  if (!promotion) return;
  if (promotion->moved_back) {
    MoveBack({.key = *promotion->moved_back, .device = promotion->device, .slot = promotion->slot},
             {&promotion->key, 1});
  }
  std::optional<Lease> lease = LeaseFor(promotion->key);
  if (!lease || !lease->is_complete()) {
    tier_->Promoted(*promotion, false);
    return;
  }
  const Device::Ticket ticket =
      devices_[promotion->device]->Fill(promotion->key, promotion->slot, MatricesOf(*lease));
  promotions_.push_back({.promotion = *promotion, .ticket = ticket, .lease = *std::move(lease)});
}

// A lease on an expert that the CPU has just computed. Prefetch may have evicted the expert
// meanwhile; where plans must not depend on timing, the expert is then read again.
std::optional<Lease> DeviceList::LeaseFor(ExpertKey key) {
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

Status DeviceList::Failed(LayerPlan& plan, const Error& why) {
  const std::optional<uint32_t> by = why.code == Errc::kDevice ? failed_ : std::nullopt;
  tier_->Failed(plan, by);
  if (!by) return {};
  const Transport& transport = devices_[*by]->transport();
  if (transport.is_wrong()) return LeaveOut(*by, why.message);
  if (const auto odd = transport.odd_pairs(); !odd.empty()) {
    suspect_ = Suspect{.device = *by, .pairs = {odd.begin(), odd.end()}};
    return {};
  }
  devices_[*by]->CountFailure();
  if (devices_[*by]->failures() < kMostFailures) return {};
  tier_->TurnOff(*by);
  const std::string& name = devices_[*by]->info().name;
  if (options_.ends_if_lost[*by]) {
    return Fail(Errc::kDevice, "the device {} is lost: {}; without --device the CPU would go on",
                name, why.message);
  }
  if (!options_.lost) return {};
  bool has_others = false;
  for (uint32_t d = 0; d < size(); ++d) has_others |= tier_->is_on(d);
  options_.lost(
      has_others ? Format("{}; the CPU and the other devices go on without {}", why.message, name)
                 : Format("{}; the CPU goes on alone", why.message));
  return {};
}

std::unexpected<Error> DeviceList::LeaveOut(uint32_t device, const std::string& why) {
  devices_[device]->transport().Distrust(why);
  tier_->TurnOff(device);
  wrong_ = Error{.code = Errc::kDevice, .message = why};
  return std::unexpected(*wrong_);
}

Status DeviceList::Judge(std::span<const float> results, size_t width) {
  if (!suspect_) return {};
  const Suspect suspect = *std::exchange(suspect_, std::nullopt);
  const auto gives_numbers_here = [&](uint32_t pair) {
    return std::ranges::all_of(results.subspan(pair * width, width),
                               [](float value) { return std::isfinite(value); });
  };
  // The model gives NaN on this machine, too.
  if (std::ranges::none_of(suspect.pairs, gives_numbers_here)) return {};
  return LeaveOut(suspect.device, Format("the remote host {} gave values that are no numbers where "
                                         "this machine computes numbers",
                                         devices_[suspect.device]->info().name));
}

std::vector<DeviceTraffic> DeviceList::traffic() const {
  std::vector<DeviceTraffic> all;
  for (const Device* device : devices_) {
    const DeviceLink* const link = device->link();
    all.push_back(link != nullptr ? link->traffic() : DeviceTraffic());
  }
  return all;
}

Status DeviceList::CheckResults() {
  for (uint32_t d = 0; d < size(); ++d) {
    Transport& transport = devices_[d]->transport();
    if (!tier_->is_on(d) || transport.is_wrong()) continue;
    const Status checked = transport.CheckResults();
    if (!checked && transport.is_wrong()) return LeaveOut(d, checked.error().message);
  }
  return {};
}

}  // namespace moestro
