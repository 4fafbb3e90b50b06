// SPDX-License-Identifier: MIT
// Devices tried with experts of the model and measured, and the experts that they get first.
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "base/small_file.h"
#include "base/system_limits.h"
#include "decide/slots/popularity.h"
#include "learned/beside_model.h"
#include "learned/cost_cache.h"
#include "learned/latency_file.h"
#include "learned/path_file.h"
#include "native/catalog.h"
#include "native/device_part.h"
#include "native/expert_biases.h"
#include "native/pinned_source.h"

namespace moestro {
namespace {

// Memory that may be taken while slots are still empty: half of what a budget leaves.
uint64_t ScratchFor(const EngineOptions& options) {
  if (options.ram_bytes == 0) return DeviceProbe::kScratch;
  const uint64_t taken = ResidentMemory();
  return options.ram_bytes > taken ? (options.ram_bytes - taken) / 2 : 0;
}

// Bytes sent to a remote host to measure its network, which carries 12 to 1200 MB a second.
constexpr uint64_t kRemoteScratch = 8 * kMiB;

}  // namespace

// 0: the device must compute the same bits.
double DevicePart::MostDifference(const UsedDevice& of) const {
  const bool is_exact = of.worker && opened_.options.device.remote.is_exact();
  return is_exact ? 0.0 : DeviceProbe::kMostDifference;
}

Status DevicePart::TryOne(size_t index, Team& team) {
  UsedDevice& its = *used_[index];
  if (index == 0 && its.here && ScratchFor(opened_.options) >= kPinnedTrialBytes) {
    slot_memory_ =
        PinnedSource(*its.here, opened_.reader.get(), opened_.options.device.pins_slow_memory);
  }
  its.plan.from_pinned = slot_memory_.has_value();
  TRY(const ExtentReader file, ExtentReader::Open(opened_.paths()));
  bool has_costs = false;
  if (!opened_.options.device.latency_model.empty()) {
    TRY(const LatencyFile costs, ReadLatency(opened_.options.device.latency_model));
    TRY(its.plan.latency, CostsOf(costs, its.plan.info.name, used_.size() == 1));
    its.plan.costs = CostSource::kFile;
    has_costs = true;
  }
  for (uint32_t form = 0; form < opened_.catalog.forms.size(); ++form) {
    if (its.slots[form] == 0) continue;
    TRY(const double worst, TryForm({index, form, has_costs}, file, team));
    its.plan.difference = std::max(its.plan.difference, worst);
    if (worst <= MostDifference(its)) {
      has_costs = true;
      continue;
    }
    if (its.worker && worst <= DeviceProbe::kMostDifference) {
      return Fail(Errc::kDevice,
                  "the remote host {} does not compute experts to the same bits (it has another "
                  "processor, or a GPU); --remote-inexact takes it",
                  its.plan.info.name);
    }
    LogWarning(
        "{} computes {} experts with an error of {:.1e} (mean squares; {:.0e} is allowed): "
        "they stay on the CPU",
        its.plan.info.name,
        ggml_type_name(static_cast<ggml_type>(opened_.catalog.forms[form].types.back())), worst,
        DeviceProbe::kMostDifference);
    its.plan.slots -= std::exchange(its.slots[form], 0);
  }
  if (std::ranges::none_of(its.slots, [](uint64_t n) { return n > 0; })) {
    return Fail(Errc::kDevice, "the device {} computes no expert of this model as the CPU does",
                its.plan.info.name);
  }
  return index == 0 ? ChooseFirst() : Status();
}

// The distance of the device's results from the CPU's. The first form that the device computes well
// is measured, if costs are not known yet.
Result<double> DevicePart::TryForm(const Trial& trial, const ExtentReader& file, Team& team) {
  const UsedDevice& its = *used_[trial.index];
  const ModelFile& model = opened_.model;
  TRY(const ExpertKey key, AnyExpertOf(opened_.catalog, trial.form));
  std::array<ExtentBytes, kMatrices> bytes;
  DeviceExperts::Matrices matrices{};
  for (size_t m = 0; m < kMatrices; ++m) {
    TRY(bytes[m], file.Read(opened_.catalog.copy(key).matrix(static_cast<Matrix>(m))));
    matrices[m] = bytes[m].bytes.data();
  }
  TRY(DeviceProbe::Biases biases, ReadBiasesOf(key, model));
  DeviceProbe probe(*its.experts, team,
                    {.key = key,
                     .matrices = matrices,
                     .bytes = BytesOf(opened_.catalog, key),
                     .kernels = opened_.kernels[trial.form],
                     .activation = model.spec.experts.activation,
                     .slots = static_cast<uint32_t>(its.slots[trial.form]),
                     .memory = slot_memory_.value_or(HostMemorySource()),
                     .biases = std::move(biases)});
  double worst = 0.0;
  for (const uint32_t rows : DeviceProbe::kRowsToTry) {
    TRY(const double difference, probe.Difference(rows));
    worst = std::max(worst, difference);
  }
  if (!trial.has_costs && worst <= MostDifference(its)) {
    TRY_STATUS(FindCosts(trial, probe));
  }
  return worst;
}

Status DevicePart::FindCosts(const Trial& trial, DeviceProbe& probe) {
  UsedDevice& its = *used_[trial.index];
  if (its.worker) {  // a network changes from day to day
    TRY(its.plan.latency, probe.Measure(kRemoteScratch));
    return {};
  }
  const CostKey key{.cpu = opened_.cpu->description(),
                    .kernel = opened_.kernels[trial.form].kernel.back().name,
                    .device = its.plan.info,
                    .pinned_by = slot_memory_ ? used_.front()->plan.info.name : "",
                    .expert = opened_.catalog.forms[trial.form]};
  if (const auto kept = KeptCosts(opened_.options.device.cost_folder, key)) {
    its.plan.latency = *kept;
    its.plan.costs = CostSource::kKept;
    return {};
  }
  TRY(its.plan.latency, probe.Measure(ScratchFor(opened_.options)));
  KeepCosts(opened_.options.device.cost_folder, key, its.plan.latency);
  return {};
}

// Orders the experts by the paths that 'moestro profile' has written, beside the model or at
// --paths. Without paths the devices are empty until a prompt has been read. Call before memory is
// planned: the table takes memory while it is read.
Status DevicePart::ChooseFirst() {
  std::shared_ptr<const PathTable> paths = opened_.predictor.paths;
  if (paths == nullptr) {
    std::string path = opened_.options.paths;
    if (path.empty()) {
      path = PathsBeside(opened_.model.gguf.paths().front());
      if (IsAbsent(path)) return {};
    }
    TRY(paths, ReadPathsFor(opened_.model.id, path));
  }
  fill_first_ = ByPopularity(*paths);
  return {};
}

}  // namespace moestro
