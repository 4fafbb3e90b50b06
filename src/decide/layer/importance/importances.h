// SPDX-License-Identifier: MIT
// Makers of the known importances, for the registry.
#pragma once

#include <memory>

#include "decide/layer/importance/importance.h"

namespace moestro {

std::unique_ptr<Importance> MakeScoreImportance();
std::unique_ptr<Importance> MakeScoreNormImportance(std::shared_ptr<const ExpertNorms> norms);

}  // namespace moestro
