// SPDX-License-Identifier: MIT
#include "engine/check_batch.h"

#include <algorithm>
#include <map>

namespace moestro {

Status CheckRows(const Batch& batch, const BatchLimits& limits,
                 const std::function<std::optional<uint32_t>(SequenceId)>& length_of) {
  if (batch.rows.empty()) return Fail(Errc::kInvalidRequest, "there are no tokens to evaluate");
  std::map<SequenceId, uint32_t> lengths;  // with the rows checked so far
  for (const BatchRow& row : batch.rows) {
    const std::optional<uint32_t> before = length_of(row.sequence);
    if (!before) {
      return Fail(Errc::kInvalidRequest, "there is no sequence {}", row.sequence.value);
    }
    const auto length = lengths.try_emplace(row.sequence, *before).first;
    if (row.position != length->second) {
      return Fail(Errc::kInvalidRequest, "position {} does not follow a sequence of {} tokens",
                  row.position, length->second);
    }
    if (++length->second > limits.n_ctx) {
      return Fail(
          Errc::kInvalidRequest,
          "{} tokens after {} do not fit a context of {}; raise --ctx (this model allows {})",
          std::ranges::count(batch.rows, row.sequence, &BatchRow::sequence), *before, limits.n_ctx,
          limits.n_ctx_train);
    }
    if (row.token < 0 || static_cast<uint32_t>(row.token) >= limits.n_vocab) {
      return Fail(Errc::kInvalidRequest, "token {} is outside the vocabulary (0 to {})", row.token,
                  limits.n_vocab - 1);
    }
  }
  return {};
}

}  // namespace moestro
