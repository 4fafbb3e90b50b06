// SPDX-License-Identifier: MIT
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "decide/predictor.h"
#include "decide/predictors/predictors.h"

namespace moestro {

std::vector<PredictorInfo> KnownPredictors() {
  return {
      {"stacked", "the next layers' routers, evaluated on this layer's input"},
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

Result<std::unique_ptr<Predictor>> MakePredictor(std::string_view name) {
  if (name == "stacked") return MakeStacked();
  if (name == "frequency") return MakeFrequency();
  if (name == "none") return std::make_unique<NoPredictor>();
  std::string known;
  for (const PredictorInfo& info : KnownPredictors()) {
    known += (known.empty() ? "" : ", ") + std::string(info.name);
  }
  return Fail(Errc::kUsage, "unknown predictor '{}'; known: {}", name, known);
}

}  // namespace moestro
