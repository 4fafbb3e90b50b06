// SPDX-License-Identifier: MIT
// Memory, and what has to do with reading into it. Pure.
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
