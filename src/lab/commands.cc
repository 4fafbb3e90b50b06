// SPDX-License-Identifier: MIT
#include "lab/commands.h"

#include "cli/flags.h"
#include "cli/program.h"

namespace moestro {

std::unique_ptr<CommandLine> MakeLabCommandLine(const std::string& program,
                                                const std::string& version) {
  auto made = std::make_unique<CommandLine>(
      program, "Measures, records, simulates and writes Mixture-of-Experts models for moestro.",
      "moestro-lab " + version);
  CommandLine& line = *made;
  line.Footer(
      "'moestro eval' is 'moestro-lab eval', and so for each command; 'moestro-lab COMMAND --help' "
      "explains one.");
  line.NameCommandForFiles("moestro run");
  AddEval(line);
  AddLogits(line);
  AddTrace(line);
  AddSim(line);
  AddProfile(line);
  AddImatrix(line);
  AddQuantize(line);
  AddFit(line);
  AddMerge(line);
  AddSynth(line);
  AddConvert(line);
  line.NameOthers({.program = std::string(kUserProgram),
                   .start = std::string(kUserProgram),
                   .commands = kUserCommands,
                   .heading = {}});
  return made;
}

}  // namespace moestro
