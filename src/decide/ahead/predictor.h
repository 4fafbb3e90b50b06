// SPDX-License-Identifier: MIT
// Predicts the experts that the next layers of a token will need, before their routers are
// evaluated. Pure, like policy.h, and for the same reason; one idea per file under predictors/.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/run_identity.h"

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

}  // namespace moestro
