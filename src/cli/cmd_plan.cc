// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/cache_folder.h"
#include "base/stop_signal.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/machine_speeds.h"
#include "cli/named_model.h"
#include "cli/output.h"
#include "cli/plan_report.h"
#include "cli/plan_subject.h"
#include "cli/report.h"
#include "engine/plan/memory_plan.h"
#include "hub/hub_settings.h"
#include "learned/kept_plan.h"
#include "learned/rates_file.h"
#include "offline/speed/planned_model.h"
#include "offline/speed/predict_speed.h"
#include "offline/speed/routing_habit.h"

namespace moestro {
namespace {

struct PlanOptions {
  CommonOptions common;
  std::string model;
  std::string machine;      // a file of a machine's speeds; empty: this machine's
  std::string machine_out;  // where this machine's go; empty: nowhere
  bool measures = false;
  bool is_offline = false;
};

// What a run takes without --ram: what is free, less a margin, and no more than the model has use
// for.
uint64_t Recommended(const MachineRates& rates, const std::vector<Fit>& fits) {
  const uint64_t free = BudgetWithin(rates.memory);
  return fits.empty() ? free : std::min(free, fits.back().ram);
}

// What the model is and needs, and what of its repository could be taken instead.
struct Planned {
  PlanReport report;
  std::string file;               // the model's first file here; empty: it is not here
  std::vector<HubModel> choices;  // the best first
  std::string label;              // of the one that is planned
};

// Only what a plan needs of the directory stays in memory.
Result<Planned> ReadModel(const PlanOptions& options) {
  const EngineOptions& engine = options.common.engine;
  TRY(const HubSettings settings, HubSettingsOf(options.is_offline));
  StopSignal never;  // an interrupt ends the process, which leaves nothing behind
  TRY(PlanSubject subject, FindSubject(options.model, engine.engine, settings, never));
  Planned planned{.report = {.model = options.model,
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
  return planned;
}

// Files of the same weights differ in size: what a token asks for, and what it takes to compute,
// are taken to grow with it.
Result<std::vector<PlannedChoice>> Choices(const Planned& planned, uint64_t ram) {
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
      TRY(const std::vector<BudgetSpeed> speeds,
          PredictSpeeds(scaled.needs, report.machine, {&*fit, 1}));
      choice.decode = speeds.front().decode;
    }
    choices.push_back(std::move(choice));
  }
  return choices;
}

Result<PlanReport> MakePlan(const PlanOptions& options) {
  const EngineOptions& engine = options.common.engine;
  TRY(Planned planned, ReadModel(options));
  PlanReport& report = planned.report;
  TRY(MachineSpeeds machine,
      FindSpeeds({.file = options.machine,
                  .is_measured = options.measures,
                  .threads = engine.threads,
                  .disk = {.folder = NearestFolder(report.folder), .file = planned.file},
                  .kept_in = CacheFolder()},
                 report.planned.needs));
  report.machine = std::move(machine.rates);
  report.measured = std::move(machine.from);
  report.is_routing_known = RecordedHabitOf(report.planned.needs.family) != nullptr;
  const std::vector<Fit> fits = report.planned.fits();
  report.is_recommended = engine.ram_bytes == 0;
  const uint64_t ram = report.is_recommended ? Recommended(report.machine, fits) : engine.ram_bytes;
  const std::optional<Fit> chosen = report.planned.fit_in(ram);
  std::vector<Fit> asked = fits;
  if (chosen) asked.push_back(*chosen);
  TRY(report.speeds, PredictSpeeds(report.planned.needs, report.machine, asked));
  if (chosen) {
    report.chosen = report.speeds.back();
    report.speeds.pop_back();
  }
  TRY(report.choices, Choices(planned, ram));
  return std::move(planned.report);
}

// For the runs that follow here.
void Keep(const PlanReport& report) {
  std::vector<PlannedSpeed> points;
  for (const BudgetSpeed& speed : report.speeds) {
    if (!points.empty() && speed.fit.share() <= points.back().share) continue;
    points.push_back(
        {.share = speed.fit.share(), .low = speed.decode.low, .high = speed.decode.high});
  }
  KeepPlan(CacheFolder(), report.fingerprint, report.machine.threads, points);
}

Status Run(const PlanOptions& options) {
  Output output(STDOUT_FILENO);
  TRY(const PlanReport report, MakePlan(options));
  if (!options.machine_out.empty()) {
    TRY_STATUS(WriteRates(options.machine_out, report.machine));
  }
  if (options.machine.empty()) Keep(report);
  if (options.common.json) return output.Write(PlanAsJson(report).Dump() + "\n");
  return output.Write(PlanText(report));
}

}  // namespace

void AddPlan(CommandLine& line) {
  auto options = std::make_shared<PlanOptions>();
  Flags plan = line.AddCommand("plan", "whether a model fits here, and how fast it will be",
                               [options] { return ExitCode(Run(*options)); });
  plan.Footer(
      "Reads the model's directory only. Speeds are predicted from this machine's disk and "
      "processor, measured in about two seconds and kept for later plans. Example: moestro plan "
      "model.gguf --ram 8G");
  plan.Add("MODEL", options->model,
           "GGUF file, owner/repo[:QUANT] of the hub, or the address of a file")
      .Required();
  plan.Group("Machine");
  plan.Add("--machine", options->machine, "plan for the machine of this file (docs/plan.md)")
      .Type("FILE");
  plan.Add("--machine-out", options->machine_out, "write this machine's speeds to a file")
      .Type("FILE")
      .Excludes("--machine");
  plan.AddSwitch("--offline", options->is_offline,
                 "no request leaves this machine: the model is here, or there is no plan");
  plan.AddSwitch("--measure", options->measures, "measure this machine again");
  AddCommonFlags(plan, options->common);
}

}  // namespace moestro
