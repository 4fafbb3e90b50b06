// SPDX-License-Identifier: MIT
// Findings about processors, memory, libraries and drivers. Pure.
#pragma once

#include <vector>

#include "doctor/diagnose.h"
#include "doctor/system_facts.h"

namespace moestro {

// Findings about processors: their number, their speed, and causes that keep threads from them.
// Pure.

// "processors", "governor", "memory nodes", "threads".
void AddProcessorFindings(const SystemFacts& facts, Findings& findings);

// Findings about memory and about reading into memory. Pure.

// "io_uring", "locked memory".
void AddReaderFindings(const SystemFacts& facts, Findings& findings);
// "memory", "huge pages", "swap".
void AddMemoryFindings(const SystemFacts& facts, Findings& findings);
// "space".
void AddFolderFindings(const std::vector<FolderFacts>& folders, Findings& findings);

// Findings about libraries and drivers: which are installed, and which are chosen. Pure.

// "sandbox", "libraries", "CPU variant".
void AddSoftwareFindings(const SystemFacts& facts, Findings& findings);
// "devices".
void AddGraphicsFindings(const SystemFacts& facts, Findings& findings);

}  // namespace moestro
