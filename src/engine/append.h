// SPDX-License-Identifier: MIT
// Appends tokens to one sequence in the usual way: one token is a decode step, several tokens are a
// prompt.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "core/batch.h"
#include "core/ids.h"
#include "engine/engine.h"

namespace moestro {

// The rows that append `tokens` to a sequence; the last row has wants_logits set, with `all_logits`
// every row.
Batch RowsOf(const Sequence& sequence, std::span<const Token> tokens, RowKind kind,
             bool all_logits = false);

// Appends the tokens and returns the logits after the last one, [n_vocab], valid until the next
// step. Errors: those of Engine::Step(). The sequence can go back to the positions in `kept`,
// rising, while there is room.
Result<std::span<const float>> Append(Engine& engine, Sequence& sequence,
                                      std::span<const Token> tokens,
                                      std::span<const uint32_t> kept = {});
// Appends the tokens as a prompt and returns the logits of every token: [n_tokens][n_vocab]
// row-major. Errors: those of Engine::Step().
Result<std::vector<float>> AppendAll(Engine& engine, Sequence& sequence,
                                     std::span<const Token> tokens);

// Cuts the sequence back to its first `position` tokens. Tokens after Sequence::Reach(position) are
// evaluated again, as decode rows in one step. After an error of Step() the sequence ends at
// Reach(position). REQUIRES: position <= sequence.position().
Status CutBackTo(Engine& engine, Sequence& sequence, uint32_t position);

}  // namespace moestro
