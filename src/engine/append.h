// SPDX-License-Identifier: MIT
// One sequence fed in the usual way: one token is a decode step, several are a prompt.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "core/batch.h"
#include "core/ids.h"
#include "engine/engine.h"

namespace moestro {

// The rows that append `tokens` to a sequence; the last one wants logits, with `all_logits` each.
Batch RowsOf(const Sequence& sequence, std::span<const Token> tokens, RowKind kind,
             bool all_logits = false);

// Appends the tokens and returns the logits after the last one, [n_vocab], valid until the next
// step. Errors: what Engine::Step() says.
Result<std::span<const float>> Append(Engine& engine, Sequence& sequence,
                                      std::span<const Token> tokens);
// Same, as a prompt, with the logits of every token: [n_tokens][n_vocab] row-major.
Result<std::vector<float>> AppendAll(Engine& engine, Sequence& sequence,
                                     std::span<const Token> tokens);

// The sequence has its first `position` tokens again: those behind Sequence::Reach(position) are
// evaluated once more, as decode rows in one step. An error of Step(): it has only those that it
// reached. REQUIRES: position <= sequence.position().
Status CutBackTo(Engine& engine, Sequence& sequence, uint32_t position);

}  // namespace moestro
