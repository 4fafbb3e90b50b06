// SPDX-License-Identifier: MIT
// Findings about memory and about reading into memory. Pure.
#pragma once

#include <vector>

#include "doctor/finding.h"
#include "doctor/system_facts.h"

namespace moestro {

// "io_uring", "locked memory".
void AddReaderFindings(const SystemFacts& facts, Findings& findings);
// "memory", "huge pages", "swap".
void AddMemoryFindings(const SystemFacts& facts, Findings& findings);
// "space".
void AddFolderFindings(const std::vector<FolderFacts>& folders, Findings& findings);

}  // namespace moestro
