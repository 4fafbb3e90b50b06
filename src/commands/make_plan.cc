// SPDX-License-Identifier: MIT
#include "commands/make_plan.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/cache_folder.h"
#include "base/format.h"
#include "base/output_file.h"
#include "base/stop_signal.h"
#include "commands/machine_speeds.h"
#include "commands/plan_subject.h"
#include "engine/plan/memory_plan.h"
#include "learned/kept_plan.h"
#include "learned/seen_caching.h"
#include "load/open_engine.h"
#include "model/vocab.h"
#include "native/device_setup.h"
#include "speed/planned_model.h"
#include "speed/predict_speed.h"
#include "speed/routing_habit.h"

namespace moestro {
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
  TRY_STATUS(MeasureMemory(subject, engine, planned.report.planned));
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
    if (const std::optional<Fit> fit = scaled.fit_in(ram)) {
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
  const std::vector<Fit> fits = report.planned.fits();
  report.is_recommended = engine.ram_bytes == 0;
  const uint64_t ram = report.is_recommended ? Recommended(report.machine, fits) : engine.ram_bytes;
  const std::optional<Fit> chosen = report.planned.fit_in(ram);
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
