// SPDX-License-Identifier: MIT
// Words and JSON about the mixers of a model's layers: heads, windows, states, and which positions,
// blocks or pools of positions rows attend to. For `moestro inspect`. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "core/model_spec.h"

namespace moestro {

// Head sizes of the first layer with attention; zeros: no layer has any.
struct HeadSizes {
  uint32_t n_head = 0;
  uint32_t n_head_kv = 0;
  uint32_t head_dim = 0;  // values of a key
};
HeadSizes HeadSizesOf(const ModelSpec& spec);

// Each kind of mixer once, behind ", "; if the model has several kinds, each behind "; " with the
// number of its layers and, where these are in even steps, their numbers.
std::string MixersText(const ModelSpec& spec);

// [{"layers": [numbers], "text": ..., "window": positions, 0: all, "pool": positions that are
// chosen together or have one key, "chosen": of these or of positions, 0: no choice, "always": of
// the chosen, the last ones, "choices": of a row}], in the order of MixersText().
Json MixersAsJson(const ModelSpec& spec);

}  // namespace moestro
