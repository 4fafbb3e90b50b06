// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>

#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "commands/commands.h"
#include "commands/make_plan.h"
#include "commands/named_model.h"
#include "commands/plan_report.h"
#include "learned/machine_files.h"

namespace moestro {
namespace {

struct PlanOptions {
  CommonOptions common;
  std::string model;
  std::string machine;     // a file of a machine's speeds; empty: this machine's
  OutputPath machine_out;  // file for this machine's speeds; empty: none
  Network network = {};    // to --remote
  bool measures = false;
  bool is_offline = false;
};

Status Run(const PlanOptions& options) {
  signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit of sizes is then an error
  Output output(STDOUT_FILENO);
  TRY(const HubSettings settings, HubSettingsOf(options.is_offline));
  TRY(const PlanReport report, MakePlan({.model = options.model,
                                         .settings = settings,
                                         .engine = options.common.engine,
                                         .machine = options.machine,
                                         .measures_again = options.measures,
                                         .network = options.network}));
  if (!options.machine_out.empty()) {
    TRY_STATUS(WriteMachine(options.machine_out, report.machine, report.devices));
  }
  if (options.machine.empty()) KeepForRuns(report);
  if (options.common.json) return output.Write(PlanAsJson(report).Dump() + "\n");
  return output.Write(PlanText(report));
}

}  // namespace

void AddPlan(CommandLine& line) {
  auto options = std::make_shared<PlanOptions>();
  Flags plan = line.AddCommand(CommandNamed("plan"), [options] { return ExitCode(Run(*options)); });
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
  plan.AddOutput("--machine-out", options->machine_out, "this machine's speeds")
      .Excludes("--machine");
  plan.AddSwitch("--offline", options->is_offline,
                 "no request leaves this machine: the model is here, or there is no plan");
  plan.AddSwitch("--measure", options->measures, "measure this machine again");
  plan.AddParsed("--network", "GBIT[/MS]",
                 "to the hosts of --remote: 10^9 bits per second and the round trip (default: "
                 "1/0.2; from 10 on MS is 0.1)",
                 [options](const std::string& text) -> Status {
                   TRY(options->network, ParseNetwork(text));
                   return {};
                 });
  AddCommonFlags(plan, options->common);
}

}  // namespace moestro
