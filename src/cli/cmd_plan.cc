// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/cache_folder.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/machine_speeds.h"
#include "cli/output.h"
#include "cli/plan_report.h"
#include "cli/report.h"
#include "learned/kept_plan.h"
#include "learned/rates_file.h"
#include "load/model_to_load.h"
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
};

// What a run takes without --ram: what is free, less a margin, and no more than the model has use
// for.
uint64_t Recommended(const MachineRates& rates, const std::vector<Fit>& fits) {
  constexpr uint64_t kLeastMargin = 256 * kMiB;
  const uint64_t margin = std::max(rates.memory / 20, kLeastMargin);
  const uint64_t free = rates.memory - std::min(margin, rates.memory);
  return fits.empty() ? free : std::min(free, fits.back().ram);
}

Result<PlanReport> MakePlan(const PlanOptions& options) {
  const EngineOptions& engine = options.common.engine;
  PlanReport report{.model = options.model};
  {
    TRY(const ModelToLoad model, ModelToLoad::Open(options.model, engine.engine));
    report.fingerprint = model.id().fingerprint;
    TRY(report.planned,
        PlannedModel::Of(model,
                         {.ctx = engine.ctx, .chunk = engine.chunk, .kv_type = engine.kv_type}));
  }
  std::error_code unknown;
  const std::filesystem::path whole = std::filesystem::absolute(options.model, unknown);
  report.folder = whole.parent_path().string();
  TRY(MachineSpeeds machine, FindSpeeds({.file = options.machine,
                                         .is_measured = options.measures,
                                         .threads = engine.threads,
                                         .disk = {.folder = report.folder, .file = options.model},
                                         .kept_in = CacheFolder()},
                                        report.planned.needs));
  report.machine = std::move(machine.rates);
  report.measured = std::move(machine.from);
  report.is_routing_known = RecordedHabitOf(report.planned.needs.family) != nullptr;
  const std::vector<Fit> fits = report.planned.fits();
  TRY(report.speeds, PredictSpeeds(report.planned.needs, report.machine, fits));
  report.is_recommended = engine.ram_bytes == 0;
  const uint64_t ram = report.is_recommended ? Recommended(report.machine, fits) : engine.ram_bytes;
  if (const std::optional<Fit> fit = report.planned.fit_in(ram)) {
    TRY(const std::vector<BudgetSpeed> speeds,
        PredictSpeeds(report.planned.needs, report.machine, {&*fit, 1}));
    report.chosen = speeds.front();
  }
  return report;
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
  plan.Add("MODEL", options->model, "GGUF file").Required();
  plan.Group("Machine");
  plan.Add("--machine", options->machine, "plan for the machine of this file (docs/plan.md)")
      .Type("FILE");
  plan.Add("--machine-out", options->machine_out, "write this machine's speeds to a file")
      .Type("FILE")
      .Excludes("--machine");
  plan.AddSwitch("--measure", options->measures, "measure this machine again");
  AddCommonFlags(plan, options->common);
}

}  // namespace moestro
