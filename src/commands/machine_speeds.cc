// SPDX-License-Identifier: MIT
#include "commands/machine_speeds.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/system_limits.h"
#include "learned/rates_file.h"

namespace moestro {
namespace {

// Types of the model's weights without a rate in `rates`.
std::vector<std::string> Missing(const ModelNeeds& needs, const MachineRates& rates) {
  std::vector<std::string> missing;
  for (const UseByType* uses : {&needs.dense, &needs.experts}) {
    for (const auto& [type, use] : *uses) {
      if (rates.Find(type) == nullptr && !std::ranges::contains(missing, type)) {
        missing.push_back(type);
      }
    }
  }
  return missing;
}

Status CheckAll(const ModelNeeds& needs, const MachineRates& rates, const std::string& who) {
  const std::vector<std::string> missing = Missing(needs, rates);
  if (missing.empty()) return {};
  return Fail(Errc::kInvalidRequest, "{} has no speed for weights of type {}", who,
              missing.front());
}

Result<uint64_t> DeviceOf(const std::string& folder) {
  struct stat info = {};
  if (::stat(folder.c_str(), &info) != 0) {
    return Fail(Errc::kIo, "cannot examine {}: {}", folder, std::strerror(errno));
  }
  return static_cast<uint64_t>(info.st_dev);
}

}  // namespace

Result<MachineSpeeds> FindSpeeds(const MachineWish& wish, const ModelNeeds& needs) {
  if (!wish.file.empty()) {
    TRY(MachineRates rates, ReadRates(wish.file));
    TRY_STATUS(CheckAll(needs, rates, wish.file));
    return MachineSpeeds{.rates = std::move(rates), .from = "by " + wish.file};
  }
  RatesKey key;
  TRY(key.cpu, ProcessorName(wish.threads));
  TRY(key.disk, DeviceOf(wish.disk.folder));
  std::optional<MachineRates> kept;
  if (!wish.measures_again) kept = KeptRates(wish.kept_in, key);
  MachineSpeeds speeds{.from = "measured at an earlier start"};
  const std::vector<std::string> missing = Missing(needs, kept.value_or(MachineRates()));
  if (!kept) {
    TRY(kept, MeasureMachine({.threads = wish.threads, .types = missing, .disk = wish.disk}));
    KeepRates(wish.kept_in, key, *kept);
    speeds.from = "measured now";
  } else if (!missing.empty()) {
    TRY(const std::vector<KernelRate> kernels, MeasureKernels(wish.threads, missing));
    kept->kernels.append_range(kernels);
    KeepRates(wish.kept_in, key, *kept);
  }
  kept->memory = UnhinderedMemory() + ResidentMemory();
  TRY_STATUS(CheckAll(needs, *kept, "this processor"));
  speeds.rates = *std::move(kept);
  return speeds;
}

}  // namespace moestro
