// SPDX-License-Identifier: MIT
#include "native/device_trial.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/result.h"
#include "base/system_limits.h"
#include "base/terminal.h"
#include "core/extent.h"
#include "devices/device_probe.h"
#include "learned/kept_facts.h"
#include "learned/machine_files.h"
#include "native/catalog.h"
#include "store/open_files.h"

namespace moestro {
namespace {

using LayerBiases = std::array<const TensorInfo*, kMatrices>;

// Biases by layer with experts.
std::vector<LayerBiases> BiasesByLayer(const ModelWeights& weights) {
  std::vector<LayerBiases> layers;
  for (const LayerWeights& layer : weights.layers) {
    if (layer.experts.is_empty()) continue;
    layers.push_back({layer.gate_b, layer.up_b, layer.down_b});
  }
  return layers;
}

}  // namespace

DeviceBiases::Shape BiasShapeOf(const ModelFile& model) {
  DeviceBiases::Shape shape{.n_embd = model.spec.n_embd_expert(),
                            .n_expert = model.spec.router.n_expert,
                            .n_ff = model.spec.expert_widths()};
  for (const LayerBiases& layer : BiasesByLayer(model.weights)) {
    std::array<bool, kMatrices>& has = shape.has.emplace_back();
    for (size_t m = 0; m < kMatrices; ++m) has[m] = layer[m] != nullptr;
  }
  return shape;
}

Result<DeviceBiases> LoadBiasesOn(const ComputeDevice& device, const ModelFile& model) {
  TRY(const ExtentReader file, ExtentReader::Open(model.gguf.paths()));
  const std::vector<LayerBiases> layers = BiasesByLayer(model.weights);
  const auto source = [&](ExpertLayerId layer, Matrix matrix, std::span<std::byte> to) -> Status {
    const TensorInfo* bias = layers[layer.value][static_cast<size_t>(matrix)];
    TRY(const ExtentBytes read, file.Read(bias->extent));
    CHECK(read.bytes.size() == to.size());
    std::ranges::copy(read.bytes, to.begin());
    return {};
  };
  return DeviceBiases::Load(device, BiasShapeOf(model), source);
}

Result<DeviceProbe::Biases> ReadBiasesOf(ExpertKey key, const ModelFile& model) {
  DeviceProbe::Biases biases;
  const LayerBiases layer = BiasesByLayer(model.weights)[key.layer.value];
  TRY(const ExtentReader file, ExtentReader::Open(model.gguf.paths()));
  for (size_t m = 0; m < kMatrices; ++m) {
    if (layer[m] == nullptr) continue;
    // The bias of one expert is a row of the tensor [experts][n_out].
    Extent row = layer[m]->extent;
    row.length /= model.spec.router.n_expert;
    row.offset += key.expert.value * row.length;
    TRY(const ExtentBytes read, file.Read(row));
    biases[m].resize(read.bytes.size() / sizeof(float));
    std::memcpy(biases[m].data(), read.bytes.data(), read.bytes.size());
  }
  return biases;
}

namespace {

// Bytes sent to a remote host to measure its network, which carries 12 to 1200 MB a second.
constexpr uint64_t kRemoteScratch = 8 * kMiB;

// Finds the device's costs, with the expert of the probe: those kept from an earlier start, else by
// measuring.
Status FindCosts(const DeviceTrial::Setting& s, uint32_t form, DeviceProbe& probe, Device& device) {
  DeviceBudget& plan = device.plan();
  if (device.here() == nullptr) {  // a network changes from day to day
    TRY(plan.latency, probe.Measure(kRemoteScratch));
    return {};
  }
  const std::string& folder = s.opened.options.device.cost_folder;
  const CostKey key{.cpu = s.opened.cpu->description(),
                    .kernel = s.opened.kernels[form].kernel.back().name,
                    .device = plan.info,
                    .pinned_by = s.slot_memory ? s.pinned_by : "",
                    .expert = s.opened.catalog.forms[form]};
  if (const auto kept = KeptCosts(folder, key)) {
    plan.latency = *kept;
    plan.costs = CostSource::kKept;
    return {};
  }
  TRY(plan.latency, probe.Measure(DeviceTrial::Scratch(s.opened.options)));
  KeepCosts(folder, key, plan.latency);
  return {};
}

}  // namespace

uint64_t DeviceTrial::Scratch(const EngineOptions& options) {
  if (options.ram_bytes == 0) return DeviceProbe::kScratch;
  const uint64_t taken = ResidentMemory();
  return options.ram_bytes > taken ? (options.ram_bytes - taken) / 2 : 0;
}

// 0: the device must compute the same bits.
double DeviceTrial::MostDifference(const Device& device) const {
  const bool is_exact = device.here() == nullptr && s_.opened.options.device.remote.is_exact();
  return is_exact ? 0.0 : DeviceProbe::kMostDifference;
}

Status DeviceTrial::Run(Device& device) const {
  const DeviceOptions& options = s_.opened.options.device;
  DeviceBudget& plan = device.plan();
  plan.from_pinned = s_.slot_memory.has_value();
  bool has_costs = false;
  if (!options.latency_model.empty()) {
    TRY(const LatencyFile costs, ReadLatency(options.latency_model));
    TRY(plan.latency, CostsOf(costs, plan.info.name, s_.is_only_device));
    plan.costs = CostSource::kFile;
    has_costs = true;
  }
  const std::vector<CopyForm>& forms = s_.opened.catalog.forms;
  for (uint32_t form = 0; form < forms.size(); ++form) {
    if (device.slots()[form] == 0) continue;
    TRY(const double worst, TryForm(device, form, has_costs));
    plan.difference = std::max(plan.difference, worst);
    if (worst <= MostDifference(device)) {
      has_costs = true;
      continue;
    }
    if (device.here() == nullptr && worst <= DeviceProbe::kMostDifference) {
      return Fail(Errc::kDevice,
                  "the remote host {} does not compute experts to the same bits (it has another "
                  "processor, or a GPU); --remote-inexact takes it",
                  plan.info.name);
    }
    LogWarning(
        "{} computes {} experts with an error of {:.1e} (mean squares; {:.0e} is allowed): "
        "they stay on the CPU",
        plan.info.name, ggml_type_name(static_cast<ggml_type>(forms[form].types.back())), worst,
        DeviceProbe::kMostDifference);
    device.LeaveOut(form);
  }
  if (std::ranges::any_of(device.slots(), [](uint64_t n) { return n > 0; })) return {};
  return Fail(Errc::kDevice, "the device {} computes no expert of this model as the CPU does",
              plan.info.name);
}

// The distance of the device's results from the CPU's. The first form that the device computes well
// is measured, if costs are not known yet.
Result<double> DeviceTrial::TryForm(Device& device, uint32_t form, bool has_costs) const {
  const ModelFile& model = s_.opened.model;
  const ExpertCatalog& catalog = s_.opened.catalog;
  const std::optional<ExpertKey> key = catalog.any_of(form);
  CHECK(key);  // a device has slots for forms of the catalog
  TRY(const ExtentReader file, ExtentReader::Open(s_.opened.paths()));
  std::array<ExtentBytes, kMatrices> bytes;
  Device::Matrices matrices{};
  for (size_t m = 0; m < kMatrices; ++m) {
    TRY(bytes[m], file.Read(catalog.copy(*key).matrix(static_cast<Matrix>(m))));
    matrices[m] = bytes[m].bytes.data();
  }
  TRY(DeviceProbe::Biases biases, ReadBiasesOf(*key, model));
  DeviceProbe probe(device, s_.team,
                    {.key = *key,
                     .matrices = matrices,
                     .bytes = BytesOf(catalog, *key),
                     .kernels = s_.opened.kernels[form],
                     .activation = model.spec.experts.activation,
                     .slots = static_cast<uint32_t>(device.slots()[form]),
                     .memory = s_.slot_memory.value_or(HostMemorySource()),
                     .biases = std::move(biases)});
  double worst = 0.0;
  for (const uint32_t rows : DeviceProbe::kRowsToTry) {
    TRY(const double difference, probe.Difference(rows));
    worst = std::max(worst, difference);
  }
  if (!has_costs && worst <= MostDifference(device)) {
    TRY_STATUS(FindCosts(s_, form, probe, device));
  }
  return worst;
}

}  // namespace moestro
