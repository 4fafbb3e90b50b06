// SPDX-License-Identifier: MIT
#include "native/device_setup.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <utility>

#include "base/input_file.h"
#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "compute/devices.h"
#include "decide/slots/first_experts.h"
#include "decide/slots/policy.h"
#include "decide/slots/slot_table.h"
#include "devices/copy_ring.h"
#include "devices/device_pools.h"
#include "devices/local_transport.h"
#include "devices/whole_layers.h"
#include "forward/dense/whole_graph.h"
#include "learned/beside_model.h"
#include "learned/learned_tables.h"
#include "native/catalog.h"
#include "native/device_trial.h"
#include "remote/remote_transport.h"

namespace moestro {
namespace {

// Memory for experts on their way from the disk to devices, if experts are small.
constexpr uint64_t kStagingBytes = 32 * kMiB;

// The devices of this machine that the options choose.
Result<std::vector<DeviceInfo>> ChosenBy(const DeviceOptions& options) {
  const bool takes_software = options.auto_takes_software;
  const bool is_auto_without = options.name == "auto" && !takes_software && !MayHaveGpu();
  if (options.name == "cpu" || is_auto_without) return {};
  const std::vector<DeviceInfo> found = FindDevices();
  TRY(const std::vector<size_t> chosen, ChooseDevices(found, options.name, takes_software));
  const auto info = [&found](size_t at) { return found[at]; };
  return std::ranges::to<std::vector>(chosen | std::views::transform(info));
}

// The size that the user allows each device, 0: no size.
Result<std::vector<uint64_t>> SizesFor(const std::vector<uint64_t>& vram, size_t devices) {
  if (vram.empty()) return std::vector<uint64_t>(devices, 0);
  if (vram.size() == 1) return std::vector<uint64_t>(devices, vram.front());
  if (vram.size() == devices) return vram;
  return Fail(Errc::kInvalidRequest,
              "--vram has {} sizes for {} devices; give one for all, or one for each", vram.size(),
              devices);
}

bool HasBiases(const ModelFile& model) {
  return std::ranges::any_of(BiasShapeOf(model).has,
                             [](const auto& layer) { return std::ranges::contains(layer, true); });
}

LaunchShape ShapeOf(const OpenedModel& opened) {
  const ModelSpec& spec = opened.model.spec;
  LaunchShape shape{.n_embd = spec.n_embd_expert(),
                    .activation = spec.experts.activation,
                    .n_used = spec.router.n_used,
                    .has_shared = spec.any_layer(&ModelSpec::has_shared_result) &&
                                  !spec.any_layer(&ModelSpec::adds_shared_in_next),
                    .adds_residual = !spec.any_layer(&ModelSpec::ends_in_next),
                    .has_limits = spec.MostOf(&FeedForwardSpec::limit_expert) > 0.0F};
  for (const CopyForm& form : opened.catalog.forms) shape.n_ff = std::max(shape.n_ff, form.n_ff);
  return shape;
}

// The model as remote hosts get it. `opened` must outlive the result.
RemoteModel RemoteModelOf(const OpenedModel& opened) {
  return {
      .catalog = opened.catalog,
      .paths = opened.paths(),
      .kernels = opened.kernels,
      .shape = RemoteTransport::ShapeOf(ShapeOf(opened), opened.options.device.remote.is_exact()),
      .moe = opened.model.id.shape};
}

}  // namespace

LaunchShape LaunchShapeOf(const OpenedModel& opened, const ComputeDevice& there) {
  LaunchShape shape = ShapeOf(opened);
  shape.bias_bytes = DeviceBiases::BytesFor(there, BiasShapeOf(opened.model));
  return shape;
}

Status CheckForRemotes(const ModelFile& model, const RemoteOptions& remote) {
  const bool has_limits = model.spec.MostOf(&FeedForwardSpec::limit_expert) > 0.0F;
  if (has_limits || HasBiases(model)) {
    return Fail(Errc::kUnsupported, "--remote: this model's experts have {}, which hosts lack",
                has_limits ? "limits" : "biases");
  }
  if (remote.is_exact() && !HasExactForm(model.spec.experts.activation)) {
    return Fail(Errc::kUnsupported,
                "--remote: the activation of this model's experts has no form that gives the same "
                "bits there; --remote-inexact takes the other");
  }
  return {};
}

bool DeviceSetup::UsesGpu(const EngineOptions& options) {
  const Result<std::vector<DeviceInfo>> chosen = ChosenBy(options.device);
  return chosen && std::ranges::any_of(*chosen, [](const DeviceInfo& info) {
           return info.kind == DeviceKind::kDiscrete || info.kind == DeviceKind::kIntegrated;
         });
}

// Opens the chosen devices, and finds the forms and the bytes that a run may use on each device.
Result<std::unique_ptr<DeviceSetup>> DeviceSetup::Open(const OpenedModel& opened) {
  std::unique_ptr<DeviceSetup> part(new DeviceSetup(opened));
  const DeviceOptions& options = opened.options.device;
  TRY(const std::vector<DeviceInfo> chosen, ChosenBy(options));
  if (chosen.empty()) return part;
  TRY(const std::vector<uint64_t> sizes, SizesFor(options.vram, chosen.size()));
  for (size_t i = 0; i < chosen.size(); ++i) {
    const Status opened_one = part->OpenOne(chosen[i], sizes[i]);
    if (opened_one) continue;
    if (!part->is_auto()) return std::unexpected(opened_one.error());
    LogWarning("{}; it is left out", opened_one.error().message);
  }
  if (part->empty()) LogWarning("no device is of use; the CPU computes everything");
  return part;
}

Status DeviceSetup::OpenOne(const DeviceInfo& info, uint64_t vram) {
  TRY(ComputeDevice gpu, ComputeDevice::Open(info));
  const LaunchShape shape = LaunchShapeOf(opened_, gpu);
  std::vector<bool> computes;
  for (const CopyForm& form : opened_.catalog.forms) {
    computes.push_back(LocalTransport::Supports(gpu, form, shape));
  }
  if (!std::ranges::contains(computes, true)) {
    return Fail(Errc::kDevice, "the device {} computes no expert of this model", info.name);
  }
  TRY(const uint64_t available, gpu.FreeMemory());
  if (vram > available) {
    return Fail(Errc::kInvalidRequest, "--vram {} is more than the {} that are free on {}",
                FormatBytes(vram), FormatBytes(available), info.name);
  }
  const uint64_t usual = available - std::min(available, VramMargin(available));
  devices_.push_back(std::make_unique<Device>(std::move(gpu), opened_.catalog,
                                              vram > 0 ? vram : usual, std::move(computes)));
  return {};
}

Status DeviceSetup::AddRemotes() {
  const RemoteOptions& remote = opened_.options.device.remote;
  if (remote.hosts.empty()) return {};
  TRY_STATUS(CheckForRemotes(opened_.model, remote));
  const RemoteModel model = RemoteModelOf(opened_);
  for (const RemoteHost& host : remote.hosts) {
    Result<std::unique_ptr<RemoteTransport>> opened = RemoteTransport::Open(host, remote, model);
    if (opened) {
      const std::span<const uint64_t> slots = (*opened)->slots();
      devices_.push_back(std::make_unique<Device>(
          *std::move(opened), opened_.catalog, std::vector<uint64_t>(slots.begin(), slots.end())));
      continue;
    }
    const Errc code = opened.error().code;
    if (code == Errc::kUsage || code == Errc::kUnsupported) {
      return std::unexpected(opened.error());
    }
    LogWarning("{}; this machine goes on without it", opened.error().message);
  }
  return {};
}

Status DeviceSetup::AllocateSlots(DenseModel& dense) {
  return ForEach(dense, [&](size_t i) -> Status {
    Device& device = *devices_[i];
    if (device.here() != nullptr) {
      return AllocateSlotsOn(device, i == 0 && dense.is_on_device() ? &dense : nullptr);
    }
    DeviceBudget& plan = device.plan();
    plan.bytes = LocalTransport::WorkBytes(device.transport().shape());
    for (size_t f = 0; f < device.slots().size(); ++f) {
      plan.bytes += DevicePools::BytesFor(opened_.catalog.forms[f], device.slots()[f]);
    }
    return {};
  });
}

Status DeviceSetup::Try(DenseModel& dense, Team& team) {
  return ForEach(dense, [&](size_t i) -> Status {
    Device& device = *devices_[i];
    const bool has_room = DeviceTrial::Scratch(opened_.options) >= kPinnedTrialBytes;
    if (i == 0 && device.here() != nullptr && has_room) {
      slot_memory_ = PinnedSource(*device.here(), opened_.reader.get(),
                                  opened_.options.device.pins_slow_memory);
    }
    const DeviceTrial trial({.opened = opened_,
                             .team = team,
                             .slot_memory = slot_memory_,
                             .pinned_by = devices_.front()->info().name,
                             .is_only_device = devices_.size() == 1});
    TRY_STATUS(trial.Run(device));
    return i == 0 ? ChooseFirst() : Status();
  });
}

// Rows of steps whose layers the device may compute whole, at most `most`, with `room` bytes there
// for experts and rows; 0: none. Where some experts do not fit, rows take a small share of the
// room.
uint32_t DeviceSetup::RowsOfWhole(const Device& device, uint64_t room, uint32_t most) const {
  const ModelSpec& spec = opened_.model.spec;
  if (!WholeGraph::Supports(spec) || !WholeLayers::Supports(spec.router)) return 0;
  const std::vector<CopyForm>& forms = opened_.catalog.forms;
  const std::vector<uint64_t> experts = opened_.catalog.copies_by_form();
  const uint64_t of_layer = spec.router.n_expert;
  uint64_t all = 0;
  uint64_t layer = std::numeric_limits<uint64_t>::max();
  for (uint32_t f = 0; f < forms.size(); ++f) {
    if (!device.computes(f)) continue;
    const uint64_t of_piece = DevicePools::SlotsOfPiece(*device.here(), forms[f], of_layer);
    all += DevicePools::BytesFor(forms[f], experts[f], of_piece);
    layer = std::min(layer, DevicePools::BytesFor(forms[f], of_layer, of_piece));
  }
  constexpr uint64_t kShareOfRoom = 16;
  const uint64_t of_most = WholeGraph::BytesFor(spec, most);
  if (all + of_most <= room || of_most <= room / kShareOfRoom) return most;
  const uint32_t few = std::min(most, StepBuffers::kFewRows);
  return layer + WholeGraph::BytesFor(spec, few) <= room ? few : 0;
}

Status DeviceSetup::AllocateSlotsOn(Device& device, const DenseModel* dense) {
  const ComputeDevice& here = *device.here();
  DeviceBudget& plan = device.plan();
  const std::vector<CopyForm>& forms = opened_.catalog.forms;
  const LaunchShape shape = LaunchShapeOf(opened_, here);
  const uint64_t work = LocalTransport::WorkBytes(shape);
  const std::string& faulty = opened_.options.device.faults_of;
  const bool has_faults = faulty.empty() || faulty == plan.info.name;
  DeviceFaults faults = has_faults ? opened_.options.device.faults : DeviceFaults{};
  TRY(DeviceBiases biases, LoadBiasesOn(here, opened_.model));
  std::vector<uint64_t> experts = opened_.catalog.copies_by_form();
  for (uint32_t f = 0; f < experts.size(); ++f) {
    if (!device.computes(f)) experts[f] = 0;
  }
  const uint64_t free = device.vram() - std::min(device.vram(), plan.bytes);
  if (dense != nullptr) {
    whole_rows_ = RowsOfWhole(device, free - std::min(free, work), dense->whole_rows());
    plan.bytes += WholeGraph::BytesFor(opened_.model.spec, whole_rows_);
  }
  std::vector<DevicePools::Size> sizes;
  std::optional<DevicePools> pools;
  for (uint64_t bytes = device.vram() - std::min(device.vram(), plan.bytes); !pools;
       bytes = work + (bytes - work) / 2) {
    sizes = DevicePools::Divide(here, bytes - std::min(bytes, work), forms, experts,
                                opened_.model.spec.router.n_expert);
    if (std::ranges::none_of(sizes, [](const auto& size) { return size.slots > 0; })) {
      return Fail(Errc::kInvalidRequest,
                  "{} on {} hold no expert beside the {} that computing them takes; raise --vram",
                  FormatBytes(bytes), plan.info.name, FormatBytes(work));
    }
    Result<DevicePools> allocated = DevicePools::Allocate(here, forms, sizes);
    if (allocated) {
      pools = *std::move(allocated);
    } else if (allocated.error().code == Errc::kNoMemory) {
      LogWarning("{}; trying half of it", allocated.error().message);
    } else {
      return std::unexpected(allocated.error());
    }
  }
  auto transport = std::make_unique<LocalTransport>(
      *device.link(), forms,
      LocalTransport::Weights{.pools = *std::move(pools), .biases = std::move(biases)}, shape,
      faults.spoils_results);
  if (dense != nullptr) {
    const uint64_t pairs = uint64_t{opened_.plan.chunk} * opened_.model.spec.router.n_used;
    TRY_STATUS(transport->ReserveThere(pairs));
  }
  plan.bytes += work;
  std::vector<uint64_t> slots;
  for (size_t f = 0; f < sizes.size(); ++f) {
    slots.push_back(sizes[f].slots);
    plan.bytes += DevicePools::BytesFor(forms[f], sizes[f].slots, sizes[f].of_piece);
  }
  device.TakeSlots(std::move(transport), std::move(slots), std::move(faults));
  return {};
}

// Prepares one device after the other. With "auto" a device that is of no use is left out.
Status DeviceSetup::ForEach(DenseModel& dense, const std::function<Status(size_t index)>& prepare) {
  for (size_t index = 0; index < devices_.size();) {
    const Status prepared = prepare(index);
    if (prepared) {
      ++index;
      continue;
    }
    if (!is_auto() && devices_[index]->here() != nullptr) return prepared;
    LogWarning("{}; {}", prepared.error().message,
               devices_.size() == 1 ? "the CPU computes everything" : "it is left out");
    TRY_STATUS(Drop(index, dense));
  }
  return {};
}

// Removes a device; later ones move down by one. All work of device 0 returns to the CPU.
Status DeviceSetup::Drop(size_t index, DenseModel& dense) {
  devices_[index]->GiveUpSlots();
  if (index == 0) slot_memory_.reset();
  if (index == 0 && dense.is_on_device()) TRY_STATUS(dense.MoveToCpu());
  devices_.erase(devices_.begin() + static_cast<std::ptrdiff_t>(index));
  return {};
}

// Enough slots that the disk is busy, and that one expert is read while each device copies another.
// Slots are shared: a device that copies takes the next one that has landed.
uint64_t DeviceSetup::staging_slots() const {
  if (!has_one_here() || tiers_ == Tiers::kInclusive) return 0;
  const uint64_t wanted =
      kStagingBytes / Residency::StagingSlotBytes(opened_.catalog, opened_.reader->block());
  return std::max<uint64_t>(std::min<uint64_t>(wanted, 8), 1 + devices_.size());
}

void DeviceSetup::AddTo(FixedBytes& fixed) const {
  fixed.devices = static_cast<uint32_t>(
      std::ranges::count_if(devices_, [](const auto& one) { return one->here() != nullptr; }));
  const size_t n_hosts = opened_.options.device.remote.hosts.size();
  if (n_hosts > 0) fixed.work += n_hosts * RemoteTransport::BytesHere(RemoteModelOf(opened_));
  fixed.work += staging_bytes();
  // Pinned slots are resident before weights are read.
  if (slot_memory()) fixed.work = std::max(fixed.work, fixed.staging);
  // A software device's memory is in use already.
  for (const std::unique_ptr<Device>& one : devices_) {
    if (one->copy_way() != Transport::CopyWay::kBlocking) fixed.work += CopyRing::kBytes;
    if (one->info().kind == DeviceKind::kIntegrated) fixed.work += one->plan().bytes;
  }
}

void DeviceSetup::CopyFromPlainMemory() {
  for (const std::unique_ptr<Device>& one : devices_) {
    one->plan().from_pinned = false;
    if (one->copy_way() == Transport::CopyWay::kPinned) {
      one->SetCopyWay(Transport::CopyWay::kRing);
    }
  }
}

// Orders the experts by the paths that 'moestro profile' has written, beside the model or at
// --paths. Without paths the devices are empty until a prompt has been read. Call before memory is
// planned: the table takes memory while it is read.
Status DeviceSetup::ChooseFirst() {
  std::shared_ptr<const PathTable> paths = opened_.predictor.paths;
  if (paths == nullptr) {
    std::string path = opened_.options.paths;
    if (path.empty()) {
      path = PathsBeside(opened_.model.gguf.paths().front());
      if (IsAbsent(path)) return {};
    }
    TRY(paths, ReadPathsFor(opened_.model.id, path));
  }
  const std::vector<uint64_t> popularity = PopularityOf(*paths);
  fill_first_ = ByPopularity(*paths);
  popularity_.assign(popularity.begin(), popularity.end());
  return {};
}

namespace {

// Bytes that the disk's bandwidth is measured with.
constexpr uint64_t kDeviceProbeBytes = 64 * kMiB;

// Launches from one known row to the next: known rows take at most a hundredth of the time.
uint32_t LaunchesToCheck(double check_seconds, double layer_seconds) {
  constexpr double kShare = 0.01;
  constexpr double kLeast = 8.0;
  constexpr double kMost = 1024.0;
  const double launches = layer_seconds > 0.0 ? check_seconds / (kShare * layer_seconds) : kMost;
  return static_cast<uint32_t>(std::clamp(launches, kLeast, kMost));
}

Status FindDiskCosts(const std::string& latency_model, DeviceSetup& devices, ExpertSlots& slots) {
  if (latency_model.empty()) {
    TRY(const double bandwidth, slots.ProbeReads(kDeviceProbeBytes));
    for (const std::unique_ptr<Device>& one : devices.devices()) {
      one->plan().latency.disk = {.per_byte = 1.0 / bandwidth};
    }
    return {};
  }
  if (devices.devices().front()->plan().latency.disk == Cost{} && !slots.holds_all()) {
    LogWarning(
        "{} has no costs of the disk: plans take reads for free; 'moestro devices MODEL --profile "
        "-o FILE' measures them",
        latency_model);
  }
  return {};
}

// The CPU's costs as measured with the first device. Beside any device the CPU is taken to be as
// slow as beside the one that slows it down most.
//
// Rows lie on the first device if that device has the dense part.
LatencyModel LatencyOfAll(const DeviceSetup& devices, uint32_t n_used, bool has_dense,
                          bool has_fixed_costs) {
  LatencyModel all = devices.devices().front()->plan().latency;
  all.devices.clear();
  for (const std::unique_ptr<Device>& one : devices.devices()) {
    all.host_beside = std::max(all.host_beside, one->plan().latency.host_beside);
    all.devices.push_back(one->plan().latency.devices.front());
  }
  const bool is_first = devices.devices().front().get() == devices.first_here();
  if (!has_dense || !is_first) {
    all.border = all.border_pair = 0.0;
  } else if (!has_fixed_costs) {
    // A row crosses as a pair does: the experts' input comes back, their sum goes there.
    all.border_pair = all.devices.front().pair / n_used;
  }
  return all;
}

PlaceMode PlaceOf(const DeviceOptions& options) {
  const bool has_chosen = options.place != PlaceMode::kAuto;
  if (has_chosen || options.remote.hosts.empty() || !options.remote.is_always) return options.place;
  return PlaceMode::kCooperative;
}

// Tables of one device, by form; nullopt: the device computes no such expert.
Result<std::vector<std::optional<SlotTable>>> TablesOf(const Device& device,
                                                       const PolicyChoice& policy,
                                                       const ExpertCatalog& catalog,
                                                       const MoeShape& shape) {
  const std::vector<uint64_t> experts = catalog.copies_by_form();
  std::vector<std::optional<SlotTable>> tables(device.slots().size());
  for (size_t form = 0; form < tables.size(); ++form) {
    if (device.slots()[form] == 0) continue;
    TRY(std::unique_ptr<Policy> its, MakePolicy(policy));
    tables[form].emplace(PolicyShape::Of(device.slots()[form], shape, experts[form]),
                         std::move(its));
  }
  return tables;
}

// Layers that the first device may compute whole; null: none. A model whose layers the device does
// not compute so keeps its borders.
std::unique_ptr<WholeLayers> WholeOf(const OpenedModel& opened, const DeviceSetup& devices,
                                     DenseModel& dense) {
  if (devices.whole_rows() == 0 || !dense.is_on_device()) return nullptr;
  const Device& first = *devices.first_here();
  const auto* transport = dynamic_cast<const LocalTransport*>(&first.transport());
  CHECK(transport != nullptr);
  WholeLayers::Parts parts{.link = *first.link(),
                           .transport = *transport,
                           .router = opened.model.spec.router,
                           .biases = {},
                           .form_of = [&catalog = opened.catalog](ExpertLayerId layer) {
                             return catalog.copy({.layer = layer, .expert = ExpertId{0}}).form;
                           }};
  const DeviceOptions& options = opened.options.device;
  if (options.faults_of.empty() || options.faults_of == first.info().name) {
    parts.fails_launch = options.faults.fails_launch;
    parts.mistakes_choice = options.faults.mistakes_choice;
  }
  for (const LayerForm& layer : dense.layers()) {
    if (!layer.result_scale.empty()) return nullptr;
    parts.biases.push_back({.logits = layer.router_bias, .selection = layer.selection_bias});
  }
  Result<std::unique_ptr<WholeLayers>> whole = WholeLayers::Create(std::move(parts));
  Status added = whole ? dense.graph().AddWhole(**whole, devices.whole_rows())
                       : Status(std::unexpected(whole.error()));
  if (added) return *std::move(whole);
  LogInfo("{}; the CPU chooses the experts of every layer", added.error().message);
  return nullptr;
}

bool IsRemote(const Device& device) { return device.here() == nullptr; }

// Whether plans are expected to be faster with remote hosts, by the costs just measured.
bool RemotesPay(const OpenedModel& opened, const DeviceSetup& devices, const ExpertSlots& slots,
                const LatencyModel& costs) {
  const MoeShape& shape = opened.model.id.shape;
  const auto share = [&](std::span<const uint64_t> of) {
    const auto n = static_cast<double>(std::reduce(of.begin(), of.end()));
    return std::min(1.0, n / static_cast<double>(shape.experts()));
  };
  RemoteCase of{.n_used = shape.n_used,
                .expert_bytes = opened.catalog.total_bytes() / shape.experts(),
                .in_memory = share(slots.slots())};
  std::string names;
  for (const std::unique_ptr<Device>& one : devices.devices()) {
    of.there.push_back(IsRemote(*one) ? share(one->slots()) : 0.0);
    if (!IsRemote(*one)) continue;
    names += Format("{}{}", names.empty() ? "" : ", ", one->info().name);
  }
  const bool is_always = opened.options.device.remote.is_always;
  const RemoteGain gain =
      GainOfRemotes(of, costs, is_always ? PlaceMode::kCooperative : PlaceMode::kAuto);
  for (uint32_t d = 0; d < devices.devices().size(); ++d) {
    Device& host = *devices.devices()[d];
    if (!IsRemote(host)) continue;
    const DeviceCosts& its = costs.devices[d];
    host.transport().CheckEvery(
        LaunchesToCheck(its.launch + its.compute.Seconds(of.expert_bytes), gain.with));
  }
  constexpr double kMs = 1e3;
  const std::string figures =
      Format("a layer's experts are expected to take {:.2f} ms with {} and {:.2f} without",
             kMs * gain.with, names, kMs * gain.without);
  if (gain.pays() || is_always) {
    LogInfo("{}", figures);
    return true;
  }
  LogWarning("{}, so they are left unused; --remote-always uses them all the same", figures);
  return false;
}

}  // namespace

Result<std::unique_ptr<DeviceList>> JoinDevices(const OpenedModel& opened, DeviceSetup& devices,
                                                ExpertSlots& slots, DenseModel& dense) {
  const bool has_dense = dense.is_on_device();
  const DeviceOptions& chosen = opened.options.device;
  TRY_STATUS(FindDiskCosts(chosen.latency_model, devices, slots));
  const bool has_fixed_costs = !chosen.latency_model.empty();
  const MoeShape& shape = opened.model.id.shape;
  std::vector<std::vector<std::optional<SlotTable>>> tables;
  std::vector<Device*> list;
  DeviceList::Options options{.is_fixed = has_fixed_costs,
                              .lost = [](const std::string& why) { LogWarning("{}", why); }};
  std::vector<bool> is_settled;
  for (const std::unique_ptr<Device>& one : devices.devices()) {
    // A lost device that holds keys and values takes them along, so the run ends.
    const bool has_cells = has_dense && one.get() == devices.first_here();
    options.ends_if_lost.push_back(!IsRemote(*one) && (!devices.goes_on_if_lost() || has_cells));
    is_settled.push_back(IsRemote(*one));
    TRY(tables.emplace_back(), TablesOf(*one, slots.policy(), opened.catalog, shape));
    list.push_back(one.get());
  }
  std::unique_ptr<WholeLayers> whole = WholeOf(opened, devices, dense);
  std::optional<ResidentModel> in_memory;
  if (has_fixed_costs) in_memory = slots.MakeResidentModel();
  const ExpertCatalog& catalog = opened.catalog;
  Residency& residency = slots.residency();
  auto tier = std::make_unique<DeviceTier>(
      DeviceTierSetup{.tables = std::move(tables),
                      .form_of = [&catalog](ExpertKey key) { return catalog.copy(key).form; },
                      .bytes_of = [&catalog](ExpertKey key) { return BytesOf(catalog, key); },
                      .in_memory = [&residency](ExpertKey key) { return residency.contains(key); },
                      .memory_slots = {slots.slots().begin(), slots.slots().end()},
                      .pool_of = [&catalog](ExpertKey key) { return catalog.copy(key).pool; },
                      .n_expert = shape.n_expert,
                      .n_layers = shape.n_layer,
                      .first_layer = shape.n_encoder,
                      .memory = std::move(in_memory),
                      .tiers = devices.tiers(),
                      .drop = [&residency](ExpertKey key) { residency.Drop(key); },
                      .memory_room =
                          [&residency](ExpertKey key, std::span<const ExpertKey> keeps) {
                            return residency.RoomFor(key, keeps);
                          },
                      .is_settled = std::move(is_settled),
                      .usual_share = shape.usual_share(),
                      .popularity = devices.popularity(),
                      .runs_layers = whole != nullptr},
      LatencyOfAll(devices, opened.model.spec.router.n_used, has_dense, has_fixed_costs),
      PlaceOf(opened.options.device));
  auto joined =
      std::make_unique<DeviceList>(std::move(list), std::move(tier), residency, std::move(options));
  joined->SetWhole(std::move(whole));
  return joined;
}

Status BringToRemotes(const OpenedModel& opened, const DeviceSetup& devices,
                      const ExpertSlots& slots, DeviceList& list) {
  std::vector<uint64_t> room;
  for (const std::unique_ptr<Device>& one : devices.devices()) {
    if (IsRemote(*one)) room.push_back(std::reduce(one->slots().begin(), one->slots().end()));
  }
  if (room.empty()) return {};
  if (!RemotesPay(opened, devices, slots, list.tier().model())) {
    for (uint32_t d = 0; d < list.size(); ++d) {
      if (IsRemote(list[d])) list.tier().TurnOff(d);
    }
    return {};
  }
  const uint64_t kept = std::reduce(slots.slots().begin(), slots.slots().end());
  std::vector<uint32_t> n_experts;
  for (const ExpertCatalog::Layer& layer : opened.catalog.layers) {
    n_experts.push_back(static_cast<uint32_t>(layer.experts.size()));
  }
  std::vector<std::vector<ExpertKey>> of_hosts =
      SharesOf(n_experts, devices.fill_first(), kept, room);
  std::vector<std::vector<ExpertKey>> shares(list.size());
  const uint32_t first = list.size() - static_cast<uint32_t>(of_hosts.size());
  for (size_t h = 0; h < of_hosts.size(); ++h) shares[first + h] = std::move(of_hosts[h]);
  return list.BringShares(std::move(shares));
}

}  // namespace moestro
