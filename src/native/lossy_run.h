// SPDX-License-Identifier: MIT
// Parts that a lossy run has beside an exact one: the state of its choices, the little pass before
// the whole one, and the check against exact logits.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "compute/team.h"
#include "core/batch.h"
#include "core/expert_catalog.h"
#include "core/model_spec.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/layer/layer_protocol.h"
#include "decide/layer/lossy_chooser.h"
#include "decide/layer/lossy_options.h"
#include "decide/slots/resident_model.h"
#include "engine/watchers.h"
#include "forward/experts/expert_exec.h"
#include "forward/forward.h"
#include "kit/slot_engine.h"
#include "native/dense_model.h"
#include "native/make_slots.h"
#include "native/opened_model.h"
#include "native/step_runner.h"
#include "residency/leases.h"
#include "residency/residency.h"
#include "store/read_queue.h"

namespace moestro {

// Holds what lossy decisions depend on: the importance of an expert for a row, the experts that
// count as present, and the low copies that are replaced later.

class LossyChoices {
 public:
  // Reads norms if importance goes by them. kIo, kInvalidFile, kInvalidRequest.
  static Result<std::unique_ptr<LossyChoices>> Create(const OpenedModel& opened,
                                                      const ExpertSlots& slots);
  LossyChoices(const LossyChoices&) = delete;
  LossyChoices& operator=(const LossyChoices&) = delete;

  // For a LayerProtocol, which this must outlive.
  LossyRules parts() {
    return {.chooser = &chooser_,
            .choices = present_ ? &*present_ : nullptr,
            .upgrades = upgrades_ ? &*upgrades_ : nullptr};
  }
  // Choices follow a model of memory, so that they do not depend on timing.
  bool are_repeatable() const { return present_.has_value(); }

 private:
  explicit LossyChoices(LossyChooser chooser) : chooser_(std::move(chooser)) {}

  LossyChooser chooser_;
  std::optional<ResidentModel> present_;  // nullopt: choices are exact, or need not be reproducible
  std::optional<Upgrades> upgrades_;      // if upgrades are on
};

// Big and little: decode rows are computed with fewer experts first, and again with all experts if
// the model is not sure. A second pass overwrites the first pass's keys and values. Experts that
// the first pass's routers chose are read ahead for the second pass. Source: MoBiLE.
//
// Thread rule: the engine thread.

class LittleFirst {
 public:
  // Everything must outlive this. REQUIRES: opened.little.is_on().
  LittleFirst(const OpenedModel& opened, StepRunner& runner, const Forward& forward,
              StepFrame& frame)
      : opened_(opened),
        runner_(runner),
        forward_(forward),
        frame_(frame),
        judge_(opened.options.little) {}

  // Whether the step is computed with fewer experts first.
  bool Takes(const Batch& batch) const;
  // As StepRunner::Compute(). If the little pass is not sure of a row, the row is computed again
  // with all experts. The logits of these rows come last. REQUIRES: Takes(batch).
  Status Compute(const Batch& batch, const StepRunner::LogitsSink& sink);

 private:
  Status ComputeAgain(const Batch& batch, std::span<const size_t> rows,
                      const StepRunner::LogitsSink& sink);

  const OpenedModel& opened_;
  StepRunner& runner_;
  const Forward& forward_;
  StepFrame& frame_;
  LittleJudge judge_;
};

// Computes the logits that a lossy engine would have given without its losses. One row is evaluated
// again, every expert from its own copy. The check has its own slots for the experts of one layer.
// The engine's slots, choices and counters do not change. The check uses the engine's weights,
// buffers and reader, and its keys and values of earlier positions.
//
// Thread rule: the engine thread.

class ExactCheck {
 public:
  static uint64_t BytesFor(const ModelSpec& spec, const ExpertCatalog& catalog,
                           std::span<const FormKernels> kernels, uint64_t block);
  // Everything must outlive this. kNoMemory.
  static Result<std::unique_ptr<ExactCheck>> Create(const OpenedModel& opened, DenseModel& dense,
                                                    Team& team, const ReadQueueOptions& reads,
                                                    StopSignal& stop);

  // The row's logits, [n_vocab], until the next call. The row's cell then holds exact keys and
  // values, so the caller must evaluate the row as usual afterwards. REQUIRES: the engine has no
  // read under way. kIo, kInterrupted.
  Result<std::span<const float>> Evaluate(const StepRow& row);

 private:
  ExactCheck(const OpenedModel& opened, DenseModel& dense, std::unique_ptr<ReadQueue> queue,
             std::unique_ptr<Residency> residency, std::unique_ptr<Predictor> nothing,
             std::vector<uint64_t> slots);

  DenseModel& dense_;
  std::unique_ptr<ReadQueue> queue_;  // the engine's own may have reads under way when this ends
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
