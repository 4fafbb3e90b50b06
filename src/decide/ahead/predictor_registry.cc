// SPDX-License-Identifier: MIT
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "decide/ahead/predictor.h"
#include "decide/ahead/predictors/predictors.h"

namespace moestro {

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
