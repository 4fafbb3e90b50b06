// SPDX-License-Identifier: MIT
// Who is on devices before the first token: the most popular experts, if it is known who they are.
// They pass through slots of memory, so the budget holds while they do.
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "decide/popularity.h"
#include "engine/engine_impl.h"
#include "learned/beside_model.h"
#include "learned/path_file.h"

namespace moestro {
namespace {

// Experts that are read while others are copied.
constexpr size_t kReadAhead = 4;

}  // namespace

// By what 'moestro profile' learned, beside the model or where --paths says; without that the
// devices start empty. Before memory is planned: the table takes some while it is read.
Status Engine::Impl::ChooseFirstOnDevice() {
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

Status Engine::Impl::FillDevice() {
  if (device_tier == nullptr) return {};
  const std::vector<DeviceTier::Promotion> wanted = device_tier->Fill(device_first);
  std::deque<Lease> reading;
  size_t next = 0;
  for (size_t done = 0; done < wanted.size(); ++done) {
    while (next < wanted.size() && reading.size() < kReadAhead) {
      std::optional<Lease> lease =
          residency->TryAcquire(wanted[next].key, Use::kPrefetch, Urgency::kDemand);
      if (!lease) break;
      reading.push_back(*std::move(lease));
      ++next;
    }
    CHECK(!reading.empty());  // nobody else has leases yet
    while (!reading.front().is_complete()) {
      residency->Wait();
      if (auto error = residency->TakeError()) return std::unexpected(*std::move(error));
    }
    const DeviceTier::Promotion& one = wanted[done];
    DeviceExperts& its = *device_experts[one.device];
    const bool has_landed = its.Wait(its.Fill(one.key, one.slot, MatricesOf(reading.front())));
    reading.pop_front();
    residency->Drop(one.key);  // memory starts empty, for what devices lack
    device_tier->Promoted(one, has_landed);
    Report("filling devices", done + 1, wanted.size());
  }
  return {};
}

}  // namespace moestro
