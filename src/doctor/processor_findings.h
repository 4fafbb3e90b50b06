// SPDX-License-Identifier: MIT
// Findings about processors: their number, their speed, and causes that keep threads from them.
// Pure.
#pragma once

#include "doctor/finding.h"
#include "doctor/system_facts.h"

namespace moestro {

// "processors", "governor", "memory nodes", "threads".
void AddProcessorFindings(const SystemFacts& facts, Findings& findings);

}  // namespace moestro
