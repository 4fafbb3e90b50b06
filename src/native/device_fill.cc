// SPDX-License-Identifier: MIT
// Who is on devices before the first token: the most popular experts, as a profile says or else as
// the first prompt asked for them (Twiddler). They pass through slots of memory, so the budget
// holds while they do.
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "decide/slots/popularity.h"
#include "learned/beside_model.h"
#include "learned/path_file.h"
#include "native/native_impl.h"

namespace moestro {
namespace {

// Experts that are read while others are copied.
constexpr size_t kReadAhead = 4;

}  // namespace

// By what 'moestro profile' learned, beside the model or where --paths says; without that the
// devices are empty until a prompt has been read. Before memory is planned: the table takes some
// while it is read.
Status NativeEngine::Impl::ChooseFirstOnDevice() {
  std::shared_ptr<const PathTable> paths = predictor_choice.paths;
  if (paths == nullptr) {
    std::string path = options.paths;
    if (path.empty()) {
      path = PathsBeside(model.gguf.paths().front());
      std::error_code unreadable;  // is no absence: ReadPathsFor() says what it is
      if (!std::filesystem::exists(path, unreadable) && !unreadable) return {};
    }
    TRY(paths, ReadPathsFor(model.id, path));
  }
  device_first = ByPopularity(*paths);
  return {};
}

Status NativeEngine::Impl::FillDevice() {
  if (device_tier == nullptr) return {};
  return CopyToDevices(device_tier->Fill(device_first), [] { return true; });
}

// A read that fails is no error: a layer that needs the expert reads it again.
void NativeEngine::Impl::FillDeviceByPrompt() {
  if (device_tier == nullptr) return;
  const std::vector<DeviceTier::Promotion> wanted = device_tier->FillByPrompt();
  if (wanted.empty()) return;
  const double start = SteadySeconds();
  // Where plans must not depend on timing what was decided by the model's costs is done.
  const Status filled = CopyToDevices(wanted, [&] {
    const bool is_late = SteadySeconds() - start > DeviceTier::kMostFillSeconds;
    return !stop.is_requested() && (is_repeatable() || !is_late);
  });
  if (!filled) LogWarning("{}; devices are filled no further", filled.error().message);
}

// Experts that memory lacks pass through slots of it.
Status NativeEngine::Impl::CopyToDevices(std::span<const DeviceTier::Promotion> wanted,
                                         const GoesOn& goes_on) {
  std::deque<Lease> reading;
  Status status;
  size_t next = 0;
  size_t done = 0;
  for (; done < wanted.size() && status && goes_on(); ++done) {
    while (next < wanted.size() && reading.size() < kReadAhead) {
      std::optional<Lease> lease =
          residency->TryAcquire(wanted[next].key, Use::kPrefetch, Urgency::kDemand);
      if (!lease && reading.empty()) {
        residency->Drain();  // reads that are no longer wanted have every slot
        lease = residency->TryAcquire(wanted[next].key, Use::kPrefetch, Urgency::kDemand);
      }
      if (!lease) break;
      reading.push_back(*std::move(lease));
      ++next;
    }
    CHECK(!reading.empty());  // between steps no other leases are out
    while (status && !reading.front().is_complete()) {
      residency->Wait();
      if (auto error = residency->TakeError()) status = std::unexpected(*std::move(error));
    }
    if (!status) break;
    const DeviceTier::Promotion& one = wanted[done];
    DeviceExperts& its = *device_experts[one.device];
    const bool has_landed = its.Wait(its.Fill(one.key, one.slot, MatricesOf(reading.front())));
    const bool was_there = reading.front().was() == Placement::Was::kReady;
    reading.pop_front();
    if (!was_there) residency->Drop(one.key);  // memory is for what devices lack
    device_tier->Promoted(one, has_landed);
    Report("filling devices", done + 1, wanted.size());
  }
  reading.clear();
  for (; done < wanted.size(); ++done) device_tier->Promoted(wanted[done], false);
  if (!status) residency->Settle();
  return status;
}

}  // namespace moestro
