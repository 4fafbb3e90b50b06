// SPDX-License-Identifier: MIT
// Experts that the rows of a step may do without: LossyOptions, and the misses of a little step,
// applied to a layer's routing. Rows of a prompt need every expert. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/batch.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/model_spec.h"
#include "core/run_identity.h"
#include "decide/layer/importance.h"
#include "decide/layer/layer_planner.h"
#include "decide/layer/lossy_options.h"

namespace moestro {

class LossyChooser {
 public:
  // `router` must outlive this. `has_low`: every expert has a low copy.
  // REQUIRES: CheckLossy(options, has_low); norms as MakeImportance() requires them.
  LossyChooser(const LossyOptions& options, const RouterSpec& router, bool has_low,
               std::shared_ptr<const ExpertNorms> norms);

  // Call before every step. `little` not on: the step is not a little one. REQUIRES: kLow only with
  // low copies.
  void BeginStep(const LittleStep& little) { little_ = little; }

  // Whether no expert of this step may be left out, coarsened or replaced.
  bool is_exact() const {
    return options_.is_exact(has_low_) && little_.misses == Misses::kRead &&
           !little_.prefers_resident;
  }
  bool has_low() const { return has_low_; }
  // Number of candidates of each row that Prefer() considers in this step; 0: Prefer() changes
  // nothing.
  uint32_t candidates() const;

  // Lets absent experts of decode rows give way to present ones (cache-aware routing): the router's
  // order, in which present experts stand lambda times the row's range higher, decides, but for the
  // best `keep`. Returns the number of replaced experts. REQUIRES: routing has candidates() of
  // them.
  uint32_t Prefer(ExpertLayerId layer, std::span<const RowKind> kinds,
                  const ExpertPresence& is_present, Routing& routing);

  RowNeeds NeedsOf(ExpertLayerId layer, const Routing& routing, std::span<const RowKind> kinds);

  // Needs of a decode row by the weights that a later layer's router would give on this layer's
  // input: [K], or [K'] of a little step. For prefetches.
  std::vector<Need> NeedsOfPredicted(ExpertLayerId layer, std::span<const ExpertId> experts,
                                     std::span<const float> weights);
  // Average need of a row for its k-th expert: for prefetches where no weights are known.
  Need UsualNeed(ExpertLayerId layer, uint32_t k) const;

 private:
  Need NeedAt(double unimportance, double share) const;
  void JudgeRow(ExpertLayerId layer, std::span<const ExpertId> experts,
                std::span<const float> weights);
  Need NeedOfMisses() const;
  uint32_t PreferRow(ExpertLayerId layer, uint32_t row, const ExpertPresence& is_present,
                     Routing& routing);

  LossyOptions options_;
  LittleStep little_;
  const RouterSpec* router_;
  bool has_low_;
  double t1_;
  double t2_;
  std::unique_ptr<Importance> importance_;
  // [layer][k]: averages over the rows seen that used all K, of the unimportance and of the share
  // of the weights.
  struct Usual {
    double unimportance = 0.0;
    double share = 1.0;
    bool is_known = false;
  };
  std::vector<Usual> usual_;
  // Scratch, of a row.
  std::vector<float> scores_;         // [candidates]
  std::vector<uint32_t> order_;       // candidates, best first
  std::vector<float> contributions_;  // [K]
  std::vector<float> unimportance_;   // [K]
  std::vector<double> shares_;        // [K]
};

// Chooses own copies that are worth reading although no layer waits for them: those of experts
// whose low copies keep running. Counts of steps decide, not time. Pure.

class Upgrades {
 public:
  // REQUIRES: keys stay below the counts of `shape`.
  explicit Upgrades(const MoeShape& shape) : shape_(shape), seen_(shape.experts()) {}

  // A layer's plan of a decode step; the shape's first decode layer begins one. Returns the own
  // copy to read, if any: of an expert that ran from its low copy for the second time within
  // kWindow steps.
  std::optional<ExpertKey> Next(const LayerPlan& plan);

 private:
  static constexpr uint64_t kWindow = 16;      // steps
  static constexpr uint32_t kMostPerStep = 2;  // each is an expert's worth of disk time

  MoeShape shape_;
  std::vector<uint64_t> seen_;  // [layer][expert]: the step of the last low use; 0: none
  uint64_t step_ = 0;
  uint32_t in_step_ = 0;
};

}  // namespace moestro
