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

// Checks the rows of sources, for a model with an encoder. A sequence that has tokens has a source.
Status CheckSources(const Batch& batch, const SequenceTable& sequences, const BatchRules& rules) {
  if (!rules.spec.encoder) return {};
  const Token end = rules.spec.encoder->source_end;
  size_t begin = 0;  // where the open source begins
  bool is_open = false;
  for (size_t i = 0; i < batch.size(); ++i) {
    const BatchRow& row = batch.rows[i];
    const bool begins = row.position == 0 && sequences.Find(row.sequence)->tokens.empty();
    if (!is_open && !begins) continue;
    if (is_open && (begins || row.sequence != batch.rows[begin].sequence)) break;
    if (begins) begin = i;
    is_open = row.token != end;
    if (row.wants_logits || row.is_kept || row.kind == RowKind::kDecode) {
      return Fail(Errc::kInvalidRequest, "rows of a source give no logits and are not kept");
    }
    if (i - begin + 1 > rules.chunk) {
      return Fail(
          Errc::kInvalidRequest,
          "the encoder takes {} tokens at a time, and the text has more; --chunk takes more",
          rules.chunk);
    }
  }
  if (!is_open) return {};
  return Fail(Errc::kInvalidRequest,
              "the text for the encoder must be in one step and end with token {}", end);
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
  TRY_STATUS(CheckSources(batch, sequences, rules));
  return CheckLittleStep(batch, rules);
}

}  // namespace moestro
