// SPDX-License-Identifier: MIT
// Documents of both programs: man pages and completions, from their commands and flags.
#pragma once

#include <string>

#include "cli/program.h"

namespace moestro {

struct BothPrograms {
  ProgramText user;  // with the laboratory's commands and their flags among `others`
  ProgramText lab;   // whose commands are written as 'moestro eval'
};

BothPrograms DescribeBoth(const std::string& version);

// Man pages in roff's man macros, from the program's own text (program.h). Pure.
//
// moestro(1), moestro-lab(1): the commands, and the parts that all of them share. `date` is written
// as it stands.
std::string ProgramManPage(const ProgramText& program, const std::string& date);
// moestro-COMMAND(1): the flags of one command.
std::string CommandManPage(const ProgramText& program, const CommandText& command,
                           const std::string& date);

// Completions of commands, flags and values for shells, from the same text. Pure.
std::string BashCompletion(const ProgramText& program);  // works without bash-completion
std::string ZshCompletion(const ProgramText& program);   // for a file _NAME in $fpath
std::string FishCompletion(const ProgramText& program);

}  // namespace moestro
