// SPDX-License-Identifier: MIT
// Findings about libraries and drivers: which are installed, and which are chosen. Pure.
#pragma once

#include "doctor/finding.h"
#include "doctor/system_facts.h"

namespace moestro {

// "sandbox", "libraries", "CPU variant".
void AddSoftwareFindings(const SystemFacts& facts, Findings& findings);
// "devices".
void AddGraphicsFindings(const SystemFacts& facts, Findings& findings);

}  // namespace moestro
