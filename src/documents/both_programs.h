// SPDX-License-Identifier: MIT
// Both programs with all commands and flags, as their documents have them.
#pragma once

#include <string>

#include "cli/program_text.h"

namespace moestro {

struct BothPrograms {
  ProgramText user;  // with the laboratory's commands and their flags among `others`
  ProgramText lab;   // whose commands are written as 'moestro eval'
};

BothPrograms DescribeBoth(const std::string& version);

}  // namespace moestro
