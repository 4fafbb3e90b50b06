// SPDX-License-Identifier: MIT
// Checks whether an engine can compute a batch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/result.h"
#include "core/batch.h"

namespace moestro {

struct BatchLimits {
  uint32_t n_ctx = 0;
  uint32_t n_ctx_train = 0;
  uint32_t n_vocab = 0;
};

// `length_of`: the number of tokens of a sequence; nullopt: no such sequence. kInvalidRequest: no
// rows, an unknown sequence, a position that does not follow or is past n_ctx, a token outside the
// vocabulary.
Status CheckRows(const Batch& batch, const BatchLimits& limits,
                 const std::function<std::optional<uint32_t>(SequenceId)>& length_of);

}  // namespace moestro
