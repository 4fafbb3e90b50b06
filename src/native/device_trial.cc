// SPDX-License-Identifier: MIT
#include "native/device_trial.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/result.h"
#include "base/system_limits.h"
#include "base/terminal.h"
#include "compute/backend_buffer.h"
#include "core/extent.h"
#include "devices/device_probe.h"
#include "learned/kept_facts.h"
#include "learned/machine_files.h"
#include "native/catalog.h"
#include "store/block_reader.h"
#include "store/open_files.h"

namespace moestro {
namespace {

// Bytes of a trial: enough that plain memory comes in huge pages, as slots do.
constexpr uint64_t kSample = kPinnedTrialBytes / 2;
constexpr uint64_t kRead = kMiB;
constexpr int kReads = 5;
// The most that reads may take relative to reads into plain memory. Slower reads are accepted if
// reading and copying together are faster than from plain memory.
constexpr double kMostSlower = 1.25;

// Seconds for kRead bytes, the least of kReads trials.
struct Trial {
  double read = std::numeric_limits<double>::infinity();  // from the disk to this memory
  double copy = std::numeric_limits<double>::infinity();  // from this memory to the device

  double both() const { return read + copy; }
};

// Seconds of reading the beginning of the first file into `memory`.
Result<double> ReadInto(std::span<std::byte> memory, BlockReader& reader) {
  const auto start = std::chrono::steady_clock::now();
  std::array<BlockDone, 1> done;
  if (!reader.Submit({.file = 0, .offset = 0, .to = memory.first(kRead)}) ||
      reader.Wait(done) != 1) {
    return Fail(Errc::kIo, "a busy reader");
  }
  if (done[0].error != 0) return Fail(Errc::kIo, "{}", ErrnoText(done[0].error));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Status ReadAndCopy(std::span<std::byte> memory, BlockReader& reader, const BackendBuffer& there,
                   Trial& trial) {
  TRY(const double read, ReadInto(memory, reader));
  const auto start = std::chrono::steady_clock::now();
  TRY_STATUS(there.Write(0, memory.first(kRead)));
  const std::chrono::duration<double> copy = std::chrono::steady_clock::now() - start;
  trial = {.read = std::min(trial.read, read), .copy = std::min(trial.copy, copy.count())};
  return {};
}

// Succeeds if reads into pinned memory are about as fast, or faster copies make up for slow reads.
Status Compare(const ComputeDevice& device, const HostMemory& pinned, BlockReader& reader,
               bool may_be_slow) {
  TRY(const HostMemory plain, HostMemory::Allocate(kSample));
  plain.Populate(0, plain.size());
  TRY(const BackendBuffer there, BackendBuffer::On(device.backend(), kRead));
  Trial of_pinned;
  Trial of_plain;
  for (int i = 0; i < kReads; ++i) {
    const uint64_t at = static_cast<uint64_t>(i) * kRead;
    TRY_STATUS(ReadAndCopy(pinned.bytes().subspan(at), reader, there, of_pinned));
    TRY_STATUS(ReadAndCopy(plain.bytes().subspan(at), reader, there, of_plain));
  }
  const double slower = of_pinned.read / of_plain.read;
  if (may_be_slow || slower <= kMostSlower || of_pinned.both() < of_plain.both()) return {};
  return Fail(Errc::kIo, "reads into it take {:.2f} times as long, copies from it {:.2f} times",
              slower, of_pinned.copy / of_plain.copy);
}

Status Try(const ComputeDevice& device, BlockReader* reader, bool may_be_slow) {
  TRY(const HostMemory sample, AllocatePinned(device, kSample));
  sample.Populate(0, sample.size());
  if (!is_cached(sample)) return Fail(Errc::kDevice, "the CPU does not cache it");
  if (reader == nullptr) return {};
  return Compare(device, sample, *reader, may_be_slow);
}

}  // namespace

std::optional<HostMemorySource> PinnedSource(const ComputeDevice& device, BlockReader* reader,
                                             bool may_be_slow) {
  const uint64_t most = MostPinned(device);
  if (most == 0) return std::nullopt;
  const Status tried = Try(device, reader, may_be_slow);
  if (!tried) {
    LogInfo("no pinned memory of {} is used: {}", device.info().name, tried.error().message);
    return std::nullopt;
  }
  return HostMemorySource{
      .allocate = [&device](uint64_t bytes) { return AllocatePinned(device, bytes); },
      .most_bytes = most};
}

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

// How the device copies experts itself.
Transport::CopyWay OwnCopiesOf(const Device& device, const DeviceTrial::Setting& s) {
  const bool is_pinned = s.slot_memory && s.pinned_by == device.info().name;
  return is_pinned ? Transport::CopyWay::kPinned : Transport::CopyWay::kRing;
}

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
    TRY(const bool still_hold, probe.AreLike(*kept));
    const bool has_way =
        !kept->devices.front().is_queued || device.SetCopyWay(OwnCopiesOf(device, s));
    if (still_hold && has_way) {
      plan.latency = *kept;
      plan.costs = CostSource::kKept;
      return {};
    }
    LogInfo("{}: costs of an earlier start no longer hold, and are measured again", plan.info.name);
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
  if (options.queues_slow_copies || (has_costs && plan.latency.devices.front().is_queued)) {
    device.SetCopyWay(OwnCopiesOf(device, s_));
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
                     .biases = std::move(biases),
                     .own_copies = OwnCopiesOf(device, s_)});
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
