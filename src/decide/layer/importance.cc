// SPDX-License-Identifier: MIT
#include "decide/layer/importance.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

#include "base/result.h"

namespace moestro {

std::vector<ImportanceInfo> KnownImportances() {
  return {{"score", "the router's weight"},
          {"score-norm", "weight times the mean length of the expert's output, from MODEL.norms"}};
}

Status CheckImportanceName(std::string_view name) {
  std::string known;
  for (const ImportanceInfo& info : KnownImportances()) {
    if (info.name == name) return {};
    known += (known.empty() ? "" : ", ") + std::string(info.name);
  }
  return Fail(Errc::kUsage, "unknown importance '{}'; known: {}", name, known);
}

std::unique_ptr<Importance> MakeImportance(std::string_view name,
                                           std::shared_ptr<const ExpertNorms> norms) {
  if (name == "score") return MakeScoreImportance();
  CHECK(name == "score-norm" && norms != nullptr);
  return MakeScoreNormImportance(std::move(norms));
}

void Unimportance(std::span<const float> contributions, std::span<float> out) {
  std::vector<uint32_t> order(contributions.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(
      order, [&](uint32_t a, uint32_t b) { return contributions[a] > contributions[b]; });
  const double sum = std::accumulate(contributions.begin(), contributions.end(), 0.0);
  double before = 0.0;
  for (const uint32_t k : order) {
    out[k] = sum > 0.0 ? static_cast<float>(before / sum) : 0.0F;
    before += static_cast<double>(contributions[k]);
  }
}

// HOBBIT's measure: the router's weight stands for the length of the weighted output.

namespace {

class ScoreImportance final : public Importance {
 public:
  void Contributions(ExpertLayerId /*layer*/, std::span<const ExpertId> /*experts*/,
                     std::span<const float> weights, std::span<float> out) const override {
    std::ranges::copy(weights, out.begin());
  }
};

}  // namespace

std::unique_ptr<Importance> MakeScoreImportance() { return std::make_unique<ScoreImportance>(); }

// Weight times the mean length of the expert's output, for models whose experts differ in length.

namespace {

class ScoreNormImportance final : public Importance {
 public:
  explicit ScoreNormImportance(std::shared_ptr<const ExpertNorms> norms)
      : norms_(std::move(norms)) {}

  void Contributions(ExpertLayerId layer, std::span<const ExpertId> experts,
                     std::span<const float> weights, std::span<float> out) const override {
    for (size_t k = 0; k < experts.size(); ++k) out[k] = weights[k] * norms_->of(layer, experts[k]);
  }

 private:
  std::shared_ptr<const ExpertNorms> norms_;
};

}  // namespace

std::unique_ptr<Importance> MakeScoreNormImportance(std::shared_ptr<const ExpertNorms> norms) {
  return std::make_unique<ScoreNormImportance>(std::move(norms));
}

}  // namespace moestro
