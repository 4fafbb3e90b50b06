// SPDX-License-Identifier: MIT
// The slots of an engine: their number within the budget, the queue that fills them, the policy
// that chooses which expert leaves, and their contents.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/host_memory.h"
#include "compute/team.h"
#include "core/expert_catalog.h"
#include "core/ids.h"
#include "core/run_identity.h"
#include "decide/slots/policy.h"
#include "decide/slots/resident_model.h"
#include "engine/engine.h"
#include "engine/plan/memory_plan.h"
#include "learned/tunings.h"
#include "residency/residency.h"
#include "store/block_reader.h"
#include "store/probe.h"
#include "store/read_queue.h"

namespace moestro {

// The places of the model's own copies in the files, matrix by matrix.
std::vector<Extent> OwnSlices(const ExpertCatalog& catalog);

// Pools of the model's own copies. slots: slots of each pool of the catalog. n_expert: experts of
// the largest layer.
ExpertPools PoolsOfOwnCopies(const ExpertCatalog& catalog, std::span<const uint64_t> slots,
                             uint32_t n_expert);

class ExpertSlots {
 public:
  // The model whose experts the slots hold. All references must outlive the slots.
  struct Model {
    const ModelId& id;
    const ExpertCatalog& catalog;
    BlockReader& reader;
    const EngineOptions& options;    // as requested
    std::vector<std::string> paths;  // of the reader's files
  };
  // reads.max_in_flight: reads that the disk gets at a time. kInvalidRequest, kUsage: the policy.
  static Result<std::unique_ptr<ExpertSlots>> Create(Model model, PlannedMemory planned,
                                                     const PolicySource& policies,
                                                     const ReadQueueOptions& reads);
  // Reserves the slots' memory, and `staging` slots more for copies to a device. kNoMemory: none is
  // reserved. REQUIRES: no success before.
  Status Allocate(const HostMemorySource& memory = {}, uint64_t staging = 0);
  ExpertSlots(const ExpertSlots&) = delete;
  ExpertSlots& operator=(const ExpertSlots&) = delete;

  const MemoryPlan& memory() const { return planned_.plan; }          // without devices
  std::span<const uint64_t> slots() const { return planned_.slots; }  // by pool
  const PolicyChoice& policy() const { return policy_; }              // in use
  const ExpertCatalog& catalog() const { return model_.catalog; }
  const MoeShape& shape() const { return model_.id.shape; }
  bool holds_all() const { return memory().n_slots >= memory().n_experts; }
  ReadQueue& queue() { return *queue_; }
  uint32_t io_depth() const { return queue_->options().max_in_flight; }
  // REQUIRES: Allocate().
  Residency& residency() { return *residency_; }
  const Residency& residency() const { return *residency_; }
  // Fills in the facts about memory, policy, pools and disk.
  void AddTo(EngineFacts& facts) const;

  // As in Engine.
  ResidentModel MakeResidentModel() const;
  std::vector<SlotContents> contents() const;
  ExpertLocation place_of(ExpertKey key) const;
  Status Preload(const Progress& report);
  bool WorkWhileIdle();

  // Begins to read the experts that decode used in earlier runs (learned/kept_facts.h). Returns
  // their number.
  uint64_t Recall();
  // Keeps the experts that decode has used, for the next start.
  void KeepUses() const;
  // Makes all slots resident. Meanwhile recalled experts are read.
  Status Populate(Team& team, const Progress& report) const;
  // Measures the disk's bytes per second by reading `total` bytes of experts as decode does; 0: no
  // matrix to read. REQUIRES: no leases. kIo.
  Result<double> ProbeReads(uint64_t total);
  // Bytes per second of reading the slots' memory on all threads of the team. REQUIRES: no leases.
  Result<double> ProbeMemory(Team& team);
  // Begins to read experts as decode does, on a thread of its own, into memory of its own (for
  // all reads at a time). REQUIRES: no leases. kIo, kUnsupported.
  Result<std::unique_ptr<ReadsBeside>> ReadBeside();

 private:
  ExpertSlots(Model model, PlannedMemory planned)
      : model_(std::move(model)), planned_(std::move(planned)) {}
  std::vector<uint8_t> UsesNow() const;

  Model model_;
  PlannedMemory planned_;
  PolicyChoice policy_;
  std::unique_ptr<ReadQueue> queue_;
  std::unique_ptr<Residency> residency_;
  std::vector<uint8_t> uses_before_;  // [layer][expert], as earlier runs kept them; may be empty
};

}  // namespace moestro
