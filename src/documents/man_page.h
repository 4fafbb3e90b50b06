// SPDX-License-Identifier: MIT
// Man pages in roff's man macros, from the program's own text (program_text.h). Pure.
#pragma once

#include <string>

#include "cli/program_text.h"

namespace moestro {

// moestro(1), moestro-lab(1): the commands, and the parts that all of them share. `date` is written
// as it stands.
std::string ProgramManPage(const ProgramText& program, const std::string& date);
// moestro-COMMAND(1): the flags of one command.
std::string CommandManPage(const ProgramText& program, const CommandText& command,
                           const std::string& date);

}  // namespace moestro
