// SPDX-License-Identifier: MIT
// Order of the experts that a start reads before a step needs them: those that decode used in an
// earlier run. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/expert_catalog.h"
#include "decide/slots/slot_table.h"

namespace moestro {

// Number of an expert's uses, as a byte whose order is that of the counts: 0 for 0, then 16 steps
// for each doubling.
uint8_t PackUses(uint32_t uses);
uint32_t UnpackUses(uint8_t packed);

// packed: [layer][expert]. The most used experts, as many as each pool has slots, in the order in
// which they lie in the files. Their counts are halved, so that present uses outweigh them.
// REQUIRES: as many bytes as the catalog has layers times `n_expert`.
std::vector<SlotTable::Used> RecallOrder(const ExpertCatalog& catalog, uint32_t n_expert,
                                         std::span<const uint64_t> slots,
                                         std::span<const uint8_t> packed);

}  // namespace moestro
