// SPDX-License-Identifier: MIT
// Findings about a model's place: the right to read it, and the speed of reading. Pure.
#pragma once

#include "doctor/finding.h"
#include "doctor/system_facts.h"

namespace moestro {

// "model", "access", "direct reads", "file system", "disk".
void AddModelFindings(const ModelFacts& model, Findings& findings);

}  // namespace moestro
