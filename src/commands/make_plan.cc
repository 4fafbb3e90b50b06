// SPDX-License-Identifier: MIT
#include "commands/make_plan.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "base/cache_files.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "base/system_limits.h"
#include "base/text.h"
#include "base/work_limit.h"
#include "commands/named_model.h"
#include "engine/plan/memory_plan.h"
#include "hub/hub_cache.h"
#include "hub/hub_client.h"
#include "hub/model_name.h"
#include "learned/kept_facts.h"
#include "learned/machine_files.h"
#include "load/open_engine.h"
#include "model/vocab.h"
#include "native/device_setup.h"
#include "native/machine_probe.h"
#include "speed/planned_model.h"
#include "speed/predict_speed.h"

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
    kept = KeepRates(wish.kept_in, key, *kept);
    speeds.from = "measured now";
  } else if (!missing.empty()) {
    TRY(const std::vector<KernelRate> kernels, MeasureKernels(wish.threads, missing));
    kept->kernels.append_range(kernels);
    kept = KeepRates(wish.kept_in, key, *kept);
  }
  kept->memory = UnhinderedMemory() + ResidentMemory();
  kept->page = PageBytes();
  TRY_STATUS(CheckAll(needs, *kept, "this processor"));
  speeds.rates = *std::move(kept);
  return speeds;
}

namespace {

namespace fs = std::filesystem;

Result<PlanSubject> OfFile(const std::string& path, const std::string& engine) {
  TRY(ModelToLoad model, ModelToLoad::Open(path, engine));
  std::error_code unknown;
  return PlanSubject{.model = std::move(model),
                     .file = path,
                     .folder = fs::absolute(path, unknown).parent_path().string()};
}

// A source that copies each range it returns.
class CopiedBytes final : public ByteSource {
 public:
  CopiedBytes(std::unique_ptr<ByteSource> from, UniqueFd to, std::string path)
      : from_(std::move(from)), to_(std::move(to)), path_(std::move(path)) {}
  const std::string& name() const override { return from_->name(); }
  const FileStamp& stamp() const override { return from_->stamp(); }
  Result<std::span<const char>> BytesAt(uint64_t offset) override {
    TRY(const std::span<const char> bytes, from_->BytesAt(offset));
    std::span<const char> rest = bytes;
    // Bytes of a range that have been copied already are skipped.
    if (offset < end_) rest = rest.subspan(std::min<uint64_t>(end_ - offset, rest.size()));
    uint64_t at = offset + (bytes.size() - rest.size());
    while (!rest.empty()) {
      const ssize_t n = ::pwrite(to_.get(), rest.data(), rest.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Fail(Errc::kIo, "{}: {}; set TMPDIR", path_, std::strerror(errno));
      rest = rest.subspan(static_cast<size_t>(n));
      at += static_cast<uint64_t>(n);
    }
    end_ = std::max(end_, at);
    return bytes;
  }

 private:
  std::unique_ptr<ByteSource> from_;
  UniqueFd to_;
  std::string path_;
  uint64_t end_ = 0;  // end of the copied bytes
};

// Ranges of a file at an address.
std::unique_ptr<ByteSource> Ranged(HubClient& client, const std::string& name,
                                   const std::string& address, uint64_t size) {
  return std::make_unique<RangedBytes>(
      name, size, [&client, address](uint64_t offset, uint64_t length) -> Result<std::string> {
        return client.Read(address, offset, length);
      });
}

// Opens files of a repository by path, with their listed sizes.
OpenBytes OpenIn(HubClient& client, const std::string& repo, const HubListing& listing) {
  std::map<std::string, uint64_t> sizes;
  for (const HubFile& file : listing.files) sizes.emplace(file.path, file.size);
  return [&client, repo, commit = listing.commit, sizes = std::move(sizes)](
             const std::string& path) -> Result<std::unique_ptr<ByteSource>> {
    const auto found = sizes.find(path);
    if (found == sizes.end()) return Fail(Errc::kIo, "{} has no file {}", repo, path);
    return Ranged(client, path, client.AddressOf(repo, commit, path), found->second);
  };
}

OpenBytes OpenAt(HubClient& client) {
  return [&client](const std::string& address) -> Result<std::unique_ptr<ByteSource>> {
    TRY(const FileAddress place, client.Find(address));
    return Ranged(client, address, address, place.size);
  };
}

Result<PlanSubject> OfRepository(const ModelName& name, const std::string& engine,
                                 const HubSettings& settings, StopSignal& stop) {
  const HubCache cache(settings.cache);
  TRY(const std::optional<CachedModel> cached, cache.Find(name));
  if (cached) return OfFile(cached->path, engine);
  if (settings.is_offline) {
    return Fail(Errc::kIo, "{} is not here, and no request may leave this machine (offline)",
                TextOf(name));
  }
  TRY(HubClient client, HubClient::Create(settings, stop));
  TRY(const HubListing listing, client.Files(name.repo, name.revision));
  TRY(const HubModel chosen, ChooseModel(listing.files, name));
  TRY(std::shared_ptr<DirectoryCopies> copies, DirectoryCopies::Create());
  TRY(ModelToLoad model,
      ModelToLoad::Open(chosen.files.front().path, engine, ModelToLoad::Use::kText,
                        copies->CopyWhat(OpenIn(client, name.repo, listing))));
  PlanSubject subject{.model = std::move(model),
                      .copies = std::move(copies),
                      .folder = settings.cache,
                      .to_fetch = chosen.bytes(),
                      .choices = ModelsIn(listing.files),
                      .label = chosen.label()};
  TRY(subject.free_bytes, FreeBytesAt(settings.cache));
  return subject;
}

Result<PlanSubject> AtAddress(const std::string& address, const std::string& engine,
                              const HubSettings& settings, StopSignal& stop) {
  if (settings.is_offline) {
    return Fail(Errc::kIo, "{}: no request may leave this machine (offline)", address);
  }
  TRY(HubClient client, HubClient::Create(settings, stop));
  TRY(std::shared_ptr<DirectoryCopies> copies, DirectoryCopies::Create());
  TRY(ModelToLoad model, ModelToLoad::Open(address, engine, ModelToLoad::Use::kText,
                                           copies->CopyWhat(OpenAt(client))));
  const uint64_t bytes = model.gguf().file_bytes();
  std::error_code unknown;
  PlanSubject subject{.model = std::move(model),
                      .copies = std::move(copies),
                      .folder = fs::current_path(unknown).string(),
                      .to_fetch = bytes};
  TRY(subject.free_bytes, FreeBytesAt(subject.folder));
  return subject;
}

}  // namespace

Result<std::shared_ptr<DirectoryCopies>> DirectoryCopies::Create() {
  std::error_code none;
  std::string folder = (fs::temp_directory_path(none) / "moestro-plan-XXXXXX").string();
  if (none || ::mkdtemp(folder.data()) == nullptr) {
    return Fail(Errc::kIo, "cannot make a folder such as {}: {}; set TMPDIR", folder,
                std::strerror(errno));
  }
  return std::shared_ptr<DirectoryCopies>(new DirectoryCopies(std::move(folder)));
}

DirectoryCopies::~DirectoryCopies() {
  std::error_code stays;
  fs::remove_all(folder_, stays);
}

OpenBytes DirectoryCopies::CopyWhat(OpenBytes open) {
  return [this,
          open = std::move(open)](const std::string& name) -> Result<std::unique_ptr<ByteSource>> {
    TRY(std::unique_ptr<ByteSource> from, open(name));
    // An address may end with a question.
    const std::string base = fs::path(name.substr(0, name.find('?'))).filename().string();
    std::string path = fs::path(folder_) / (base.empty() ? "model.gguf" : base);
    UniqueFd to(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (to.get() < 0 || ::ftruncate(to.get(), static_cast<off_t>(from->stamp().size)) != 0) {
      return Fail(Errc::kIo, "cannot make {} of {} bytes for the directory of {}: {}; set TMPDIR",
                  path, from->stamp().size, name, std::strerror(errno));
    }
    if (first_.empty()) first_ = path;
    return std::make_unique<CopiedBytes>(std::move(from), std::move(to), std::move(path));
  };
}

Result<PlanSubject> FindSubject(const std::string& text, const std::string& engine,
                                const HubSettings& settings, StopSignal& stop) {
  TRY(const ModelName name, ModelNameOf(text, settings));
  if (name.kind == ModelNameKind::kPath) return OfFile(name.path, engine);
  if (name.kind == ModelNameKind::kAddress) return AtAddress(name.address, engine, settings, stop);
  return OfRepository(name, engine, settings, stop);
}

namespace {

// Budget of a run without --ram: the free memory less a margin, and no more than the model can use.
uint64_t Recommended(const MachineRates& rates, const std::vector<Fit>& fits) {
  const uint64_t free = BudgetWithin(rates.memory);
  return fits.empty() ? free : std::min(free, fits.back().ram);
}

// The model and its needs, and the other models of its repository.
struct Planned {
  PlanReport report;
  std::string refusal_of_hosts = {};  // empty: hosts can compute the model's experts
  std::string file;                   // path of the model's first file; empty: not on this machine
  std::vector<HubModel> choices;      // the best first
  std::string label;                  // label of the planned model
};

std::string RefusalOfHosts(const ModelToLoad& model, const RemoteOptions& remote) {
  if (remote.hosts.empty()) return {};
  if (!model.is_native()) return "the hosted engine uses no hosts";
  const Status can = CheckForRemotes(model.native(), remote);
  return can ? std::string() : can.error().message;
}

// Measures fixed memory as the engine does, without reading a weight, and refuses what a run would
// refuse. The estimate stays where this machine has no addresses for so much.
Status MeasureMemory(const PlanSubject& subject, const EngineOptions& options,
                     PlannedModel& planned) {
  if (!subject.file.empty()) {
    const Result<Vocab> text = Vocab::Load(subject.model.gguf());
    if (!text) return std::unexpected(text.error());
  }
  EngineOptions engine = options;
  engine.engine = planned.engine;
  const std::string& path = subject.file.empty() ? subject.copies->first() : subject.file;
  Result<FixedMemory> measured = MeasureFixed(path, engine);
  if (!measured && measured.error().code == Errc::kNoMemory) return {};
  TRY(planned.fixed, std::move(measured));
  return {};
}

// Reads the model's directory and keeps only the facts that a plan needs.
Result<Planned> ReadModel(const PlanWish& wish) {
  const EngineOptions& engine = wish.engine;
  StopSignal never;
  TRY(PlanSubject subject, FindSubject(wish.model, engine.engine, wish.settings,
                                       wish.stop != nullptr ? *wish.stop : never));
  Planned planned{.report = {.model = wish.model,
                             .folder = subject.folder,
                             .to_fetch = subject.to_fetch,
                             .free_bytes = subject.free_bytes,
                             .fingerprint = subject.model.id().fingerprint},
                  .file = subject.file,
                  .choices = std::move(subject.choices),
                  .label = subject.label};
  TRY(planned.report.planned,
      PlannedModel::Of(subject.model,
                       {.ctx = engine.ctx, .chunk = engine.chunk, .kv_type = engine.kv_type}));
  EngineOptions measured = engine;
  // The devices are another machine's.
  if (!wish.machine.empty() || !engine.device.latency_model.empty())
    measured.device = {.name = "cpu"};
  TRY_STATUS(MeasureMemory(subject, measured, planned.report.planned));
  planned.refusal_of_hosts = RefusalOfHosts(subject.model, engine.device.remote);
  return planned;
}

// nullopt: none are named.
Result<std::optional<PlannedHosts>> Hosts(const Planned& planned, const SpeedPredictor& predictor,
                                          const PlanWish& wish) {
  const std::vector<RemoteHost>& named = wish.engine.device.remote.hosts;
  if (named.empty() || !planned.report.chosen) return std::nullopt;
  PlannedHosts hosts{.network = wish.network, .refusal = planned.refusal_of_hosts};
  std::vector<uint64_t> bytes;
  for (const RemoteHost& host : named) {
    if (host.bytes == 0) {
      return Fail(Errc::kUsage, "a plan asks no host what it has: write {}=SIZE", host.address());
    }
    hosts.names += Format("{}{}", hosts.names.empty() ? "" : ", ", host.address());
    hosts.bytes += host.bytes;
    bytes.push_back(host.bytes);
  }
  if (!hosts.refusal.empty()) return hosts;
  TRY(hosts.price, predictor.PriceHosts(planned.report.planned.needs, planned.report.chosen->fit,
                                        bytes, wish.network));
  return hosts;
}

// Bytes of a device that a run takes without --vram.
uint64_t UsualVram(uint64_t memory) { return memory - std::min(memory, VramMargin(memory)); }

// The costs of the devices that the plan may use: from a file, or measured.
Result<LatencyFile> DevicesFor(const PlanWish& wish, const Planned& planned) {
  const DeviceOptions& asked = wish.engine.device;
  if (asked.name == "cpu") return LatencyFile();
  if (!asked.latency_model.empty()) return ReadLatency(asked.latency_model);
  if (!wish.machine.empty()) return ReadDevices(wish.machine);
  const bool is_native = planned.report.planned.engine == "native";
  return ProfileFirst(asked.name, {.threads = wish.engine.threads,
                                   .model = is_native ? planned.file : std::string()});
}

// The first device of `file` that --device names, or the first one; nullopt: a remote host, or no
// device.
std::optional<size_t> ChooseFrom(const LatencyFile& file, const std::string& names) {
  for (size_t d = 0; d < file.devices.size(); ++d) {
    const bool is_named = names == "auto" || file.devices.size() == 1 ||
                          LowerCase(file.devices[d]) == LowerCase(names);
    if (is_named && !file.is_remote[d]) return d;
  }
  return std::nullopt;
}

// nullopt: no device.
Result<std::optional<PlannedDevice>> PriceDevice(const LatencyFile& file, const Planned& planned,
                                                 const SpeedPredictor& predictor,
                                                 const DeviceOptions& asked) {
  const std::optional<size_t> at = ChooseFrom(file, asked.name);
  if (!at && asked.name != "auto" && asked.name != "cpu") {
    return Fail(Errc::kUsage, "--device {}: the machine's file has no such device", asked.name);
  }
  if (!at || !planned.report.chosen) return std::nullopt;
  const uint64_t memory = file.memory[*at];
  PlannedDevice device{.name = file.devices[*at],
                       .vram = asked.vram.empty() ? UsualVram(memory) : asked.vram.front()};
  if (device.vram == 0) {
    return Fail(Errc::kUsage, "the memory of {} is not known: set --vram", device.name);
  }
  const PlannedModel& model = planned.report.planned;
  if (model.engine != "native") {
    device.refusal = "the hosted engine uses no devices";
    return device;
  }
  LatencyModel costs = file.model;
  costs.devices = {file.model.devices[*at]};
  TRY(std::tie(device.even, device.recorded),
      predictor.PriceDevice(model.needs, planned.report.chosen->fit, model.fixed,
                            {.name = device.name, .vram = device.vram, .costs = std::move(costs)}));
  return device;
}

uint64_t BlockOf(const MachineRates& machine) {
  return machine.page > 0 ? PlannedBlock(machine.page) : PlannedBlockHere();
}

// Speeds of the repository's other files. The bytes that a token needs, and the time of computing,
// are assumed to grow with the file's size.
Result<std::vector<PlannedChoice>> Choices(const Planned& planned, const SpeedPredictor& predictor,
                                           uint64_t ram) {
  const PlanReport& report = planned.report;
  std::vector<PlannedChoice> choices;
  if (planned.choices.size() < 2 || report.planned.file_bytes == 0) return choices;
  for (const HubModel& other : planned.choices) {
    PlannedChoice choice{.label = other.label(),
                         .bytes = other.bytes(),
                         .is_planned = other.label() == planned.label};
    const PlannedModel scaled = report.planned.Scaled(
        static_cast<double>(choice.bytes) / static_cast<double>(report.planned.file_bytes));
    if (const std::optional<Fit> fit = scaled.fit_in(ram, BlockOf(report.machine))) {
      TRY(const std::vector<BudgetSpeed> speeds, predictor.Predict(scaled.needs, {&*fit, 1}));
      choice.decode = speeds.front().decode;
    }
    choices.push_back(std::move(choice));
  }
  return choices;
}

}  // namespace

Result<PlanReport> MakePlan(const PlanWish& wish) {
  const EngineOptions& engine = wish.engine;
  TRY(Planned planned, ReadModel(wish));
  PlanReport& report = planned.report;
  TRY(MachineSpeeds machine,
      FindSpeeds({.file = wish.machine,
                  .measures_again = wish.measures_again,
                  .threads = engine.threads,
                  .disk = {.folder = NearestFolder(report.folder), .file = planned.file},
                  .kept_in = CacheFolder()},
                 report.planned.needs));
  report.machine = std::move(machine.rates);
  report.measured = std::move(machine.from);
  const uint64_t block = BlockOf(report.machine);
  const std::vector<Fit> fits = report.planned.fits(block);
  report.is_recommended = engine.ram_bytes == 0;
  const uint64_t ram = report.is_recommended ? Recommended(report.machine, fits) : engine.ram_bytes;
  const std::optional<Fit> chosen = report.planned.fit_in(ram, block);
  std::vector<Fit> asked = fits;
  if (chosen) asked.push_back(*chosen);
  const ModelNeeds& needs = report.planned.needs;
  const std::optional<SeenCaching> seen = KeptCaching(CacheFolder(), report.fingerprint);
  report.routing = seen                                       ? RoutingSource::kRun
                   : RecordedHabitOf(needs.family) != nullptr ? RoutingSource::kFamily
                                                              : RoutingSource::kRange;
  TRY(const SpeedPredictor predictor,
      SpeedPredictor::Create(needs.shape, needs.family, seen, report.machine));
  TRY(report.speeds, predictor.Predict(needs, asked));
  if (chosen) {
    report.chosen = report.speeds.back();
    report.speeds.pop_back();
  }
  TRY(report.devices, DevicesFor(wish, planned));
  TRY(report.device, PriceDevice(report.devices, planned, predictor, engine.device));
  TRY(report.hosts, Hosts(planned, predictor, wish));
  if (!wish.has_choices) return std::move(planned.report);
  TRY(report.choices, Choices(planned, predictor, ram));
  return std::move(planned.report);
}

void KeepForRuns(const PlanReport& report) {
  std::vector<PlannedSpeed> points;
  for (const BudgetSpeed& speed : report.speeds) {
    if (!points.empty() && speed.fit.share() <= points.back().share) continue;
    points.push_back(
        {.share = speed.fit.share(), .low = speed.decode.low, .high = speed.decode.high});
  }
  KeepPlan(CacheFolder(), report.fingerprint, report.machine.threads, points);
}

}  // namespace moestro
