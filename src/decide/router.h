// SPDX-License-Identifier: MIT
// Router logits -> which experts, with what weight. Pure.
// The order of steps is the one GGUF models are converted for: probabilities over all experts, the
// K largest of them, then optional renormalisation and scale.
#pragma once

#include <span>

#include "core/model_spec.h"
#include "core/routing.h"

namespace moestro {

// logits: [n_tokens][n_expert] row-major. Ties go to the lower expert id, NaN counts as the
// smallest value, so a row never repeats an expert whatever the input. REQUIRES: logits.size() is a
// multiple of spec.n_expert; 0 < n_used <= n_expert.
Routing Route(const RouterSpec& spec, std::span<const float> logits);

}  // namespace moestro
