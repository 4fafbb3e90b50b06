// SPDX-License-Identifier: MIT
// Puts the threads of the team on the memory nodes, and weights beside the threads that read them,
// where the machine has several nodes (docs/decisions/0034). A refusal of the kernel is logged, and
// the engine runs on with the rest.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "compute/numa_machine.h"
#include "compute/team.h"
#include "core/expert_catalog.h"
#include "engine/engine.h"
#include "forward/dense/blocks.h"
#include "native/plan/numa_plan.h"
#include "residency/residency.h"

namespace moestro {

class NumaPlacement {
 public:
  // Until destruction the threads of the team take pages from all nodes in turn, and each thread
  // runs on its own node if that is planned. null: one node, switched off, or the process has a
  // memory policy of its own. `team` must outlive this. Fails as Team::Run().
  static Result<std::unique_ptr<NumaPlacement>> Begin(std::string_view asked,
                                                      std::shared_ptr<NumaMachine> machine,
                                                      Team& team);
  NumaPlacement(const NumaPlacement&) = delete;
  NumaPlacement& operator=(const NumaPlacement&) = delete;
  ~NumaPlacement();

  const NumaPlan& plan() const { return plan_; }  // the part of the plan that the kernel allowed

  // Touch the pages in which one node's rows lie, each from its node. Other pages are interleaved
  // when they are touched. REQUIRES: the memory is untouched and has no policy. Fail as
  // Team::Run().
  //
  // PlaceSlots() places slots. REQUIRES: each pool came from memory in one piece.
  Status PlaceSlots(const ExpertCatalog& catalog, const Residency& residency,
                    const Progress& report) const;
  // PlaceDense() places the weights that our own kernels multiply (compute/product_node.h).
  Status PlaceDense(const ModelTensors& tensors) const;

 private:
  NumaPlacement(NumaPlan plan, std::shared_ptr<NumaMachine> machine, Team& team)
      : plan_(std::move(plan)), machine_(std::move(machine)), team_(team) {}
  Status MoveThreads();
  Status RunAnywhere() const;
  Status TakePages(NewPages how, std::span<const uint32_t> nodes) const;
  void KeepSmall(std::span<std::byte> memory) const;
  Status Touch(std::span<const NodeBytes> pages) const;
  void TouchShare(std::span<const NodeBytes> pages, size_t thread) const;

  NumaPlan plan_;
  std::shared_ptr<NumaMachine> machine_;
  Team& team_;
};

// The weights that graphs multiply by our own kernels, grouped by node of the graph, in the order
// of the node.
std::vector<std::vector<const ggml_tensor*>> JoinedWeights(const ModelTensors& tensors);

}  // namespace moestro
