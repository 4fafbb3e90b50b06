// SPDX-License-Identifier: MIT
#include "engine/append.h"

#include <algorithm>
#include <cstddef>

namespace moestro {

Batch RowsOf(const Sequence& sequence, std::span<const Token> tokens, RowKind kind,
             bool all_logits) {
  Batch batch;
  batch.rows.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    batch.rows.push_back({.sequence = sequence.id(),
                          .position = sequence.position() + static_cast<uint32_t>(i),
                          .token = tokens[i],
                          .kind = kind,
                          .wants_logits = all_logits || i + 1 == tokens.size()});
  }
  return batch;
}

Result<std::span<const float>> Append(Engine& engine, Sequence& sequence,
                                      std::span<const Token> tokens,
                                      std::span<const uint32_t> kept) {
  const RowKind kind = tokens.size() == 1 ? RowKind::kDecode : RowKind::kPrompt;
  std::span<const float> last;
  Batch batch = RowsOf(sequence, tokens, kind);
  for (BatchRow& row : batch.rows) row.is_kept = std::ranges::binary_search(kept, row.position + 1);
  TRY_STATUS(engine.Step(batch, [&](size_t, std::span<const float> logits) { last = logits; }));
  return last;
}

Result<std::vector<float>> AppendAll(Engine& engine, Sequence& sequence,
                                     std::span<const Token> tokens) {
  std::vector<float> all;
  all.reserve(tokens.size() * engine.facts().n_vocab);
  TRY_STATUS(engine.Step(RowsOf(sequence, tokens, RowKind::kPrompt, true),
                         [&](size_t, std::span<const float> logits) {
                           all.insert(all.end(), logits.begin(), logits.end());
                         }));
  return all;
}

Status CutBackTo(Engine& engine, Sequence& sequence, uint32_t position) {
  const std::vector<Token> tokens(sequence.tokens().begin(), sequence.tokens().end());
  const uint32_t reached = sequence.GoBack(position);
  if (reached == position) return {};
  Batch batch =
      RowsOf(sequence, std::span(tokens).subspan(reached, position - reached), RowKind::kDecode);
  batch.rows.back().wants_logits = false;
  return engine.Step(batch, {});
}

}  // namespace moestro
