// SPDX-License-Identifier: MIT
// The place of a model: may it be read, and how fast can it be? Pure.
#pragma once

#include "doctor/finding.h"
#include "doctor/system_facts.h"

namespace moestro {

// "model", "access", "direct reads", "file system", "disk".
void AddModelFindings(const ModelFacts& model, Findings& findings);

}  // namespace moestro
