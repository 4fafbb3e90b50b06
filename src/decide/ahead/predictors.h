// SPDX-License-Identifier: MIT
// Predicts the experts that the next layers of a token will need, before their routers are
// evaluated: the interface, the known predictors and their names. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/run_identity.h"
#include "decide/ahead/path_table.h"

namespace moestro {

// Shape of the predictions: the model's, and their reach.
struct PredictorShape {
  MoeShape moe;
  uint32_t depth = 1;  // layers looked ahead at most
};

class Predictor {
 public:
  // Choices that a layer's router has just made for the rows of a step.
  struct Seen {
    ExpertLayerId layer;
    uint32_t rows = 1;
    std::span<const ExpertId> chosen;  // [row][K], in router order; K' of a little step
    // [distance - 1][row][K]: the experts that the router of layer + distance chooses on this
    // layer's input, best first. As many distances as were evaluated; often none.
    std::span<const ExpertId> ahead = {};
  };

  virtual ~Predictor() = default;
  // Drops observed routing, but not a profile's table.
  virtual void Reset(const PredictorShape& shape) = 0;
  virtual void SequenceBegun() {}
  // Layers of a step in order; the first decode layer of the shape begins a step, whose rows are
  // the same in every layer.
  virtual void Observe(const Seen& seen) = 0;
  // The experts that the layer `distance` after the last one observed will need, for all rows
  // together: likeliest first, at most the model's K for each row, none twice; empty without a
  // prediction.
  // REQUIRES: 1 <= distance <= depth, and such a layer exists. The span lives until the next call.
  virtual std::span<const ExpertId> Predict(uint32_t distance) = 0;
  // True: Observe() is of use only with Seen::ahead, which costs a product per layer.
  virtual bool wants_ahead() const { return false; }
};

struct PredictorInfo {
  std::string_view name;
  std::string_view summary;  // one line for --help
};

class PathTable;

struct PredictorChoice {
  std::string name = "next-router";
  // Table of the predictor "paths", of the model's shape.
  std::shared_ptr<const PathTable> paths = {};
};

// The known predictors, in the order of --help; "none" is the last.
std::vector<PredictorInfo> KnownPredictors();
// kUsage for an unknown name; the message lists the known ones. REQUIRES: "paths" come with a
// table.
Result<std::unique_ptr<Predictor>> MakePredictor(const PredictorChoice& choice);
// Checks a name as MakePredictor() does, without making a predictor.
Status CheckPredictorName(std::string_view name);

// The distinct experts of several rows.

class ExpertUnion {
 public:
  void Reset(uint32_t experts) { is_in_.assign(experts, false); }

  // The distinct experts of `rows`, [row][used], best first in each row: all rows' first choices,
  // then all second ones, and so on. The span lives until the next call.
  std::span<const ExpertId> ByRank(std::span<const ExpertId> rows, uint32_t used) {
    experts_.clear();
    for (size_t rank = 0; rank < used; ++rank) {
      for (size_t at = rank; at < rows.size(); at += used) {
        if (is_in_[rows[at].value]) continue;
        is_in_[rows[at].value] = true;
        experts_.push_back(rows[at]);
      }
    }
    for (const ExpertId expert : experts_) is_in_[expert.value] = false;
    return experts_;
  }

 private:
  std::vector<bool> is_in_;
  std::vector<ExpertId> experts_;
};

// One maker per predictor; predictors.cc gives them names.

std::unique_ptr<Predictor> MakeNextRouter();
std::unique_ptr<Predictor> MakeFrequency();
// Predicts the experts that followed those of the two layers before, in routing that `table` was
// learned from. REQUIRES: Reset() gets the table's shape.
std::unique_ptr<Predictor> MakePaths(std::shared_ptr<const PathTable> table);

}  // namespace moestro
