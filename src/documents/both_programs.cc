// SPDX-License-Identifier: MIT
#include "documents/both_programs.h"

#include "cli/command_names.h"
#include "cli/flags.h"
#include "commands/commands.h"
#include "lab/commands.h"

namespace moestro {

BothPrograms DescribeBoth(const std::string& version) {
  BothPrograms both{
      .user = MakeCommandLine(version)->Describe(),
      .lab = MakeLabCommandLine(std::string(kLabProgram), version)->Describe(),
  };
  both.user.others = both.lab.commands;
  both.lab.before = both.user.name;
  return both;
}

}  // namespace moestro
