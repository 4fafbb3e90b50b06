// SPDX-License-Identifier: MIT
#include "commands/commands.h"

#include "cli/command_names.h"
#include "cli/flags.h"

namespace moestro {

std::unique_ptr<CommandLine> MakeCommandLine(const std::string& version) {
  auto made = std::make_unique<CommandLine>(
      "moestro", "Runs Mixture-of-Experts models that do not fit into memory.",
      "moestro " + version);
  CommandLine& line = *made;
  line.Footer("'moestro run' alone tells a story; 'moestro COMMAND --help' explains a command.");
  line.NameCommandForFiles("moestro run");
  AddRun(line);
  AddServe(line);
  AddHealth(line);
  AddPlan(line);
  AddPull(line);
  AddList(line);
  AddRemove(line);
  AddBench(line);
  AddInspect(line);
  AddDevices(line);
  AddDoctor(line);
  line.NameOthers({.program = std::string(kLabProgram),
                   .start = std::string(kUserProgram),
                   .commands = kLabCommands,
                   .heading = "THE LABORATORY'S, in moestro-lab beside this program (package "
                              "moestro-lab, or 'make lab')"});
  return made;
}

}  // namespace moestro
