// SPDX-License-Identifier: MIT
#include "native/batch_check.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "engine/check_batch.h"

namespace moestro {
namespace {

Status CheckForeseen(const Batch& batch, const ModelSpec& spec) {
  if (batch.foreseen.empty()) return {};
  const RouterSpec& router = spec.router;
  const size_t n = batch.foreseen.front().size();
  bool is_whole = batch.foreseen.size() == spec.n_expert_layers() && n > 0 &&
                  n % router.n_used == 0 && n / router.n_used <= batch.size();
  for (const std::vector<ExpertId>& of_layer : batch.foreseen) {
    is_whole = is_whole && of_layer.size() == n &&
               std::ranges::all_of(of_layer, [&](ExpertId e) { return e.value < router.n_expert; });
  }
  if (is_whole) return {};
  return Fail(Errc::kInvalidRequest,
              "what is foreseen has not the shape of the model and the rows");
}

Status CheckLittleStep(const Batch& batch, const BatchRules& rules) {
  const bool has_prompt = std::ranges::contains(batch.rows, RowKind::kPrompt, &BatchRow::kind);
  if (has_prompt && !batch.foreseen.empty()) {
    return Fail(Errc::kInvalidRequest, "rows of a prompt are not foreseen");
  }
  TRY_STATUS(CheckForeseen(batch, rules.spec));
  if (!batch.little.is_on()) return {};
  if (batch.little.n_used >= rules.spec.router.n_used) {
    return Fail(Errc::kInvalidRequest, "a little step uses fewer than {} experts, not {}",
                rules.spec.router.n_used, batch.little.n_used);
  }
  if (batch.little.misses == Misses::kLow && !rules.has_low) {
    return Fail(Errc::kInvalidRequest, "there are no low copies for a little step's misses");
  }
  if (has_prompt) return Fail(Errc::kInvalidRequest, "rows of a prompt use all experts");
  return {};
}

}  // namespace

Status CheckBatch(const Batch& batch, const SequenceTable& sequences, const BatchRules& rules) {
  TRY_STATUS(CheckRows(
      batch,
      {.n_ctx = rules.n_ctx, .n_ctx_train = rules.spec.n_ctx_train, .n_vocab = rules.spec.n_vocab},
      [&](SequenceId id) -> std::optional<uint32_t> {
        const Timeline* timeline = sequences.Find(id);
        if (timeline == nullptr) return std::nullopt;
        return static_cast<uint32_t>(timeline->tokens.size());
      }));
  return CheckLittleStep(batch, rules);
}

}  // namespace moestro
