// SPDX-License-Identifier: MIT
// Completions of commands, flags and values for shells, from the program's own text
// (program_text.h). Pure.
#pragma once

#include <string>

#include "cli/program_text.h"

namespace moestro {

std::string BashCompletion(const ProgramText& program);  // works without bash-completion
std::string ZshCompletion(const ProgramText& program);   // for a file _NAME in $fpath
std::string FishCompletion(const ProgramText& program);

}  // namespace moestro
