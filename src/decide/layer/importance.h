// SPDX-License-Identifier: MIT
// Importance of each expert of a row, which is compared with HOBBIT's thresholds. One idea per
// file. Pure.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/run_identity.h"

namespace moestro {

// Mean length of each expert's output, measured by `moestro profile`.
struct ExpertNorms {
  MoeShape shape;
  std::vector<float> values;  // [layer][expert]
  float of(ExpertLayerId layer, ExpertId expert) const {
    return values[size_t{layer.value} * shape.n_expert + expert.value];
  }
};

class Importance {
 public:
  virtual ~Importance() = default;
  // Contribution of each expert of a row: any measure above 0. All spans are [K].
  virtual void Contributions(ExpertLayerId layer, std::span<const ExpertId> experts,
                             std::span<const float> weights, std::span<float> out) const = 0;
};

struct ImportanceInfo {
  std::string_view name;
  std::string_view summary;  // one line for --help
};
std::vector<ImportanceInfo> KnownImportances();

// kUsage for an unknown name; the message lists the known ones.
Status CheckImportanceName(std::string_view name);
// REQUIRES: a known name; "score-norm" comes with norms of the model's shape.
std::unique_ptr<Importance> MakeImportance(std::string_view name,
                                           std::shared_ptr<const ExpertNorms> norms);

// The contributions of a row -> its unimportance: the share of all that more important experts
// contribute, 0 for the first, below 1 for the others. Equals go by their order in the row.
void Unimportance(std::span<const float> contributions, std::span<float> out);

// Makers of the known importances, for the registry.

std::unique_ptr<Importance> MakeScoreImportance();
std::unique_ptr<Importance> MakeScoreNormImportance(std::shared_ptr<const ExpertNorms> norms);

}  // namespace moestro
