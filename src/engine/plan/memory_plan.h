// SPDX-License-Identifier: MIT
// Turns the user's budget into slots: measures the memory that the process already takes, gets the
// split from decide/budget, and records the size of every part.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/pages.h"
#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/model_spec.h"
#include "engine/engine_options.h"

namespace moestro {

// Slots are planned for a disk with blocks of this size, or with larger blocks if the disk has
// them. Disks with smaller blocks then get the same number of slots.
inline constexpr uint64_t kPlannedBlock = 4096;
// The block that plans take for a machine with pages of so many bytes: direct reads go by pages.
inline uint64_t PlannedBlock(uint64_t page) { return std::max(kPlannedBlock, page); }
inline uint64_t PlannedBlockHere() { return PlannedBlock(PageBytes()); }

// Bytes that do not depend on the number of slots.
struct FixedBytes {
  uint64_t dense = 0;
  uint64_t kv = 0;
  uint64_t work = 0;            // for a step: activations, graph, experts, kernel scratch
  uint64_t thread = 0;          // for each compute thread, on top
  uint32_t threads = 0;         // compute threads
  uint32_t n_vocab = 0;         // tokens of the vocabulary, kept in the process
  uint32_t vocabularies = 1;    // so many times
  uint32_t devices = 0;         // beside the CPU; each has a driver in the process
  uint64_t staging = 0;         // while loading only, before slots are populated
  uint64_t request = 1U << 20;  // of one read at most
  // Resident memory of the process without these parts; 0: measured when planning.
  uint64_t resident = 0;
};

// ggml's own scratch for products of `chunk` tokens: the converted activations of the widest row.
uint64_t MultiplyScratch(const ModelSpec& spec, uint32_t chunk);

// The most memory that a process takes before an engine takes memory: program, libraries,
// vocabulary, and growth. A process that has taken more by then plans with its own size.
uint64_t UsualProcess(uint32_t n_vocab, uint32_t vocabularies);

// Budget within `room` free bytes if the user names none: all but a margin.
uint64_t BudgetWithin(uint64_t room);

struct PlannedMemory {
  MemoryPlan plan;
  std::vector<uint64_t> slots;  // per pool of the catalog
};

// If choices depend on slots and --ram alone is given, the process gets a fixed share of the
// budget. The slots, and so the text, are then the same on every machine and at any moment. `block`
// is the reader's alignment in bytes, `fewest` the slots of each pool that a step cannot do
// without. kInvalidRequest when the budget does not hold them, or the process takes more than its
// fixed share.
Result<PlannedMemory> PlanMemory(const EngineOptions& options, const ExpertCatalog& catalog,
                                 uint64_t block, std::span<const uint64_t> fewest,
                                 const FixedBytes& fixed);

}  // namespace moestro
