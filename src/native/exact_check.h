// SPDX-License-Identifier: MIT
// Computes the logits that a lossy engine would have given without its losses. One row is evaluated
// again, every expert from its own copy. The check has its own slots for the experts of one layer.
// The engine's slots, choices and counters do not change. The check uses the engine's weights,
// buffers and disk, and its keys and values of earlier positions.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/stop_signal.h"
#include "compute/team.h"
#include "core/expert_catalog.h"
#include "core/model_spec.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/layer/layer_protocol.h"
#include "engine/watchers.h"
#include "forward/experts/expert_exec.h"
#include "forward/forward.h"
#include "native/dense_part.h"
#include "native/opened_model.h"
#include "residency/prefetched_experts.h"
#include "residency/residency.h"
#include "store/read_queue.h"

namespace moestro {

class ExactCheck {
 public:
  static uint64_t BytesFor(const ModelSpec& spec, const ExpertCatalog& catalog,
                           std::span<const FormKernels> kernels, uint64_t block);
  // Everything must outlive this. kNoMemory.
  static Result<std::unique_ptr<ExactCheck>> Create(const OpenedModel& opened, DensePart& dense,
                                                    Team& team, ReadQueue& queue, StopSignal& stop);

  // The row's logits, [n_vocab], until the next call. The row's cell then holds exact keys and
  // values, so the caller must evaluate the row as usual afterwards. REQUIRES: the engine has no
  // read under way. kIo, kInterrupted.
  Result<std::span<const float>> Evaluate(const StepRow& row);

 private:
  ExactCheck(const OpenedModel& opened, DensePart& dense, std::unique_ptr<Residency> residency,
             std::unique_ptr<Predictor> nothing, std::vector<uint64_t> slots);

  DensePart& dense_;
  std::unique_ptr<Residency> residency_;
  PrefetchedExperts prefetched_;
  PrefetchPlanner planner_;  // has no predictions
  LayerProtocol protocol_;
  std::unique_ptr<ExpertExec> experts_;
  Watchers nothing_watches_;
  std::optional<Forward> forward_;
  std::vector<float> logits_;
};

}  // namespace moestro
