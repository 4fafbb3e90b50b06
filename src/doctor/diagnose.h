// SPDX-License-Identifier: MIT
// Finds faults and causes of slowness of a machine, with remedies. Pure: a function of the facts
// alone.
#pragma once

#include "doctor/finding.h"
#include "doctor/system_facts.h"

namespace moestro {

// Findings in the order of docs/doctor.md: one or more of each check for which the facts suffice.
Findings Diagnose(const SystemFacts& facts);

// The worst verdict of the findings; kOk if the list is empty.
Verdict WorstOf(const Findings& findings);

}  // namespace moestro
