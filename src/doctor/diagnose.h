// SPDX-License-Identifier: MIT
// What is slow or wrong on a machine, and the remedy. Pure: it looks at facts alone.
#pragma once

#include "doctor/finding.h"
#include "doctor/system_facts.h"

namespace moestro {

// In the order of docs/doctor.md. One finding or more of each check that the facts tell something
// about.
Findings Diagnose(const SystemFacts& facts);

// The worst of them; kOk of none.
Verdict WorstOf(const Findings& findings);

}  // namespace moestro
