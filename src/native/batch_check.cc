// SPDX-License-Identifier: MIT
#include "native/batch_check.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

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
  if (batch.rows.empty()) return Fail(Errc::kInvalidRequest, "there are no tokens to evaluate");
  TRY_STATUS(CheckLittleStep(batch, rules));
  std::map<SequenceId, uint32_t> lengths;  // with the rows checked so far
  for (const BatchRow& row : batch.rows) {
    const Timeline* timeline = sequences.Find(row.sequence);
    if (timeline == nullptr) {
      return Fail(Errc::kInvalidRequest, "there is no sequence {}", row.sequence.value);
    }
    const auto length =
        lengths.try_emplace(row.sequence, static_cast<uint32_t>(timeline->tokens.size())).first;
    if (row.position != length->second) {
      return Fail(Errc::kInvalidRequest, "position {} does not follow a sequence of {} tokens",
                  row.position, length->second);
    }
    if (++length->second > rules.n_ctx) {
      return Fail(
          Errc::kInvalidRequest,
          "{} tokens after {} do not fit a context of {}; raise --ctx (this model allows {})",
          std::ranges::count(batch.rows, row.sequence, &BatchRow::sequence),
          timeline->tokens.size(), rules.n_ctx, rules.spec.n_ctx_train);
    }
    if (row.token < 0 || static_cast<uint32_t>(row.token) >= rules.spec.n_vocab) {
      return Fail(Errc::kInvalidRequest, "token {} is outside the vocabulary (0 to {})", row.token,
                  rules.spec.n_vocab - 1);
    }
  }
  return {};
}

}  // namespace moestro
