// SPDX-License-Identifier: MIT
#include "commands/commands.h"

#include "cli/flags.h"
#include "lab/commands.h"

namespace moestro {

std::unique_ptr<CommandLine> MakeCommandLine(const std::string& version) {
  auto made = std::make_unique<CommandLine>(
      "moestro", "Runs Mixture-of-Experts models that do not fit into memory.",
      "moestro " + version);
  CommandLine& line = *made;
  line.Footer("'moestro run' alone tells a story; 'moestro COMMAND --help' explains a command.");
  line.NameCommandForFiles("run");
  AddRun(line);
  AddServe(line);
  AddHealth(line);
  AddBench(line);
  AddInspect(line);
  AddDevices(line);
  AddDoctor(line);
  AddEval(line);
  AddLogits(line);
  AddSynth(line);
  AddTrace(line);
  AddSim(line);
  AddPlan(line);
  AddPull(line);
  AddList(line);
  AddRemove(line);
  AddProfile(line);
  AddImatrix(line);
  AddMerge(line);
  AddQuantize(line);
  AddConvert(line);
  AddFit(line);
  return made;
}

}  // namespace moestro
