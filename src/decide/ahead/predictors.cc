// SPDX-License-Identifier: MIT
// The baseline: predicts for a layer the experts that it has lately used most.
#include "decide/ahead/predictors.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace moestro {
namespace {

class FrequencyPredictor final : public Predictor {
 public:
  void Reset(const PredictorShape& shape) override {
    shape_ = shape.moe;
    counts_.assign(size_t{shape.moe.n_layer} * shape.moe.n_expert, 0.0);
    order_.resize(shape.moe.n_expert);
    layer_ = 0;
  }
  void Observe(const Seen& seen) override {
    layer_ = seen.layer.value;
    rows_ = seen.rows;
    for (double& count : of(layer_)) count *= kKeep;
    for (const ExpertId expert : seen.chosen) of(layer_)[expert.value] += 1.0;
  }
  std::span<const ExpertId> Predict(uint32_t distance) override {
    const std::span<const double> counts = of(layer_ + distance);
    std::iota(order_.begin(), order_.end(), uint16_t{0});
    const uint32_t most = std::min(shape_.n_expert, shape_.n_used * rows_);
    std::ranges::partial_sort(order_, order_.begin() + most, [&](uint16_t a, uint16_t b) {
      return counts[a] != counts[b] ? counts[a] > counts[b] : a < b;
    });
    predicted_.clear();
    for (size_t i = 0; i < most && counts[order_[i]] > 0.0; ++i) {
      predicted_.push_back(ExpertId{order_[i]});
    }
    return predicted_;
  }

 private:
  // Share of a count that is left after a step: half after 17 steps.
  static constexpr double kKeep = 0.96;

  std::span<double> of(size_t layer) {
    return std::span(counts_).subspan(layer * shape_.n_expert, shape_.n_expert);
  }
  MoeShape shape_;
  std::vector<double> counts_;  // [layer][expert]
  std::vector<uint16_t> order_;
  std::vector<ExpertId> predicted_;
  size_t layer_ = 0;
  uint32_t rows_ = 1;
};

}  // namespace

std::unique_ptr<Predictor> MakeFrequency() { return std::make_unique<FrequencyPredictor>(); }

// HOBBIT's look-ahead: a layer's router input changes little from layer to layer, so the next
// layers' routers, evaluated on this layer's input, choose nearly what they will choose.

namespace {

class NextRouterPredictor final : public Predictor {
 public:
  void Reset(const PredictorShape& shape) override {
    union_.Reset(shape.moe.n_expert);
    ahead_.clear();
  }
  void Observe(const Seen& seen) override {
    rows_ = seen.rows;
    used_ = static_cast<uint32_t>(seen.chosen.size()) / rows_;
    ahead_.assign(seen.ahead.begin(), seen.ahead.end());
  }
  std::span<const ExpertId> Predict(uint32_t distance) override {
    const size_t row_block = size_t{rows_} * used_;
    if (ahead_.size() < distance * row_block) return {};
    return union_.ByRank(std::span(ahead_).subspan((distance - 1) * row_block, row_block), used_);
  }
  bool wants_ahead() const override { return true; }

 private:
  uint32_t used_ = 1;  // experts of a row of the step
  uint32_t rows_ = 1;
  std::vector<ExpertId> ahead_;  // [distance - 1][row][K]
  ExpertUnion union_;
};

}  // namespace

std::unique_ptr<Predictor> MakeNextRouter() { return std::make_unique<NextRouterPredictor>(); }

// EdgeMoE's activation paths. Layers further ahead follow from those predicted in between, as if
// their routers had chosen so.

namespace {

class Paths final : public Predictor {
 public:
  explicit Paths(std::shared_ptr<const PathTable> table) : table_(std::move(table)) {}

  void Reset(const PredictorShape& shape) override {
    CHECK(shape.moe.is_as_large_as(table_->shape()));
    first_ = shape.moe.n_encoder;
    union_.Reset(shape.moe.n_expert);
    known_.clear();
    observed_ = 0;
  }

  void Observe(const Seen& seen) override {
    layer_ = seen.layer.value;
    known_.resize(layer_ == first_ ? 0 : observed_);  // without predictions
    if (known_.size() == 2) known_.erase(known_.begin());
    known_.emplace_back(seen.chosen.begin(), seen.chosen.end());
    observed_ = known_.size();
  }

  std::span<const ExpertId> Predict(uint32_t distance) override {
    if (observed_ == 0) return {};
    while (known_.size() < observed_ + distance) known_.push_back(NextLayer());
    return union_.ByRank(known_[observed_ + distance - 1], table_->shape().n_used);
  }

 private:
  // Experts that most likely follow the last layers of known_: [row][K].
  std::vector<ExpertId> NextLayer() {
    const size_t used = table_->shape().n_used;
    const std::span<const ExpertId> last = known_.back();
    const std::span<const ExpertId> earlier =
        known_.size() < 2 ? std::span<const ExpertId>() : known_[known_.size() - 2];
    std::vector<ExpertId> best(last.size());
    for (size_t at = 0; at < last.size(); at += used) {
      table_->Rank(layer_ + 1 + known_.size() - observed_, last.subspan(at, used),
                   earlier.empty() ? earlier : earlier.subspan(at, used),
                   std::span(best).subspan(at, used), scores_);
    }
    return best;
  }

  std::shared_ptr<const PathTable> table_;
  size_t first_ = 0;     // of a decode step
  size_t layer_ = 0;     // the last one observed
  size_t observed_ = 0;  // entries of known_ that were observed, at most 2
  // Experts of layers in a row, [row][K] each: observed, then predicted.
  std::vector<std::vector<ExpertId>> known_;
  std::vector<float> scores_;
  ExpertUnion union_;
};

}  // namespace

std::unique_ptr<Predictor> MakePaths(std::shared_ptr<const PathTable> table) {
  return std::make_unique<Paths>(std::move(table));
}

std::vector<PredictorInfo> KnownPredictors() {
  return {
      {"next-router", "the next layers' routers, evaluated on this layer's input"},
      {"paths", "what followed the experts of the last two layers, learned by 'moestro profile'"},
      {"frequency", "the experts that a layer has asked for most, lately"},
      {"none", "no prediction, no prefetch"},
  };
}

namespace {

class NoPredictor final : public Predictor {
 public:
  void Reset(const PredictorShape& /*shape*/) override {}
  void Observe(const Seen& /*seen*/) override {}
  std::span<const ExpertId> Predict(uint32_t /*distance*/) override { return {}; }
};

}  // namespace

Status CheckPredictorName(std::string_view name) {
  std::string known;
  for (const PredictorInfo& info : KnownPredictors()) {
    if (info.name == name) return {};
    known += (known.empty() ? "" : ", ") + std::string(info.name);
  }
  return Fail(Errc::kUsage, "unknown predictor '{}'; known: {}", name, known);
}

Result<std::unique_ptr<Predictor>> MakePredictor(const PredictorChoice& choice) {
  TRY_STATUS(CheckPredictorName(choice.name));
  if (choice.name == "next-router") return MakeNextRouter();
  if (choice.name == "frequency") return MakeFrequency();
  if (choice.name == "none") return std::make_unique<NoPredictor>();
  CHECK(choice.paths != nullptr);
  return MakePaths(choice.paths);
}

}  // namespace moestro
