// SPDX-License-Identifier: MIT
// The slots of an engine as Engine's methods report, fill and measure them: once, for the native
// and the hosted engine.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/ids.h"
#include "core/model_id.h"
#include "decide/slots/policy.h"
#include "decide/slots/resident_model.h"
#include "engine/engine.h"
#include "residency/residency.h"
#include "store/block_reader.h"
#include "store/read_queue.h"

namespace moestro {

// The places of the model's own copies in the files, matrix by matrix.
std::vector<Extent> OwnSlices(const ExpertCatalog& catalog);

// Engine::slot_contents(). slots: by pool.
std::vector<SlotContents> ContentsOf(const Residency& residency, const ExpertCatalog& catalog,
                                     std::span<const uint64_t> slots);

// Engine::place_of().
ExpertPlace PlaceOf(const ExpertCatalog& catalog, ExpertKey key);

// Engine::MakeResidentModel(). slots: by pool. The model has a catalog of its own, since a caller
// may keep the model while a restart replaces the engine's. REQUIRES: `policy` is known.
ResidentModel ResidentModelOf(const ExpertCatalog& catalog, std::span<const uint64_t> slots,
                              const PolicyChoice& policy, const MoeShape& shape);

// Engine::Preload(): reads the model's own copy of every expert into its slot, layer by layer.
// kInvalidRequest: the slots of `memory` do not hold them all; kIo.
Status ReadAllExperts(Residency& residency, const ExpertCatalog& catalog, const MemoryPlan& memory,
                      const Progress& report);

// Engine::ProbeDiskBandwidth(): reads `total` bytes of experts as decode does; 0: no matrix to
// read. REQUIRES: no leases. kIo.
Result<double> ProbeExpertReads(Residency& residency, const ExpertCatalog& catalog,
                                BlockReader& reader, const ReadQueueOptions& reads, uint64_t total);

}  // namespace moestro
