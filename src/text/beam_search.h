// SPDX-License-Identifier: MIT
// Beam search: of all continuations, the B likeliest so far go on side by side.
//
// As the transformers library does it, with early_stopping="never": each step ranks the 2B best of
// all continuations of the running beams by the sum of their log-probabilities (ties: the lower
// beam, then the lower id). A continuation that ends the text is finished if it is among the first
// B, and dropped otherwise. The first B others run on. The search stops if B beams are finished and
// no running beam can still beat the worst finished one. The search also stops if no more tokens
// fit, or at an interruption; the running beams are then finished as they are. score = log_prob /
// length^a; tokens and length include the end token.
//
// No clock, no random number: equal logits give equal beams.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "engine/engine.h"

namespace moestro {

// Sequences side by side. Implementations: EngineBeams (production), a scripted one in tests.
class BeamRows {
 public:
  virtual ~BeamRows() = default;
  // Gets the logits of a row, [n_vocab], which are valid during the call.
  using Sink = std::function<void(size_t row, std::span<const float> logits)>;

  // Begins with one row, the prompt. Earlier rows are removed.
  virtual Status Begin(std::span<const Token> prompt, const Sink& sink) = 0;
  // Replaces the rows: new row i is old row parents[i] and then tokens[i]. An error leaves no rows.
  // REQUIRES: equal sizes, not empty.
  virtual Status Advance(std::span<const uint32_t> parents, std::span<const Token> tokens,
                         const Sink& sink) = 0;
};

struct BeamOptions {
  uint32_t beams = 4;           // from 1 on
  double length_penalty = 1.0;  // a
  uint32_t max_tokens = 0;      // most tokens of a beam, the end token included; from 1 on
};

struct Beam {
  std::vector<Token> tokens;  // after the prompt
  double log_prob = 0.0;      // sum
  double score = 0.0;
  bool is_ended = false;  // an end token, the last of `tokens`, has ended the text
};

struct BeamCallbacks {
  std::function<bool(Token)> is_end;
  // Called with tokens as soon as all beams that may still be the best share them. May be empty.
  std::function<void(std::span<const Token>)> agreed = {};
};

// At most `beams`, best first (ties: finished earlier). Errors of the rows; kInvalidFile for logits
// that are not numbers (a damaged model). REQUIRES: a prompt, beams > 0, max_tokens > 0.
Result<std::vector<Beam>> SearchBeams(BeamRows& rows, const BeamCallbacks& parts,
                                      std::span<const Token> prompt, const BeamOptions& options);

// Forks of one engine's sequences as BeamRows: keys and values are shared, and a step of all rows
// reads each expert once.

class EngineBeams final : public BeamRows {
 public:
  // `engine` must outlive this, and have room for the rows' sequences.
  explicit EngineBeams(Engine& engine) : engine_(engine) {}

  Status Begin(std::span<const Token> prompt, const Sink& sink) override;
  Status Advance(std::span<const uint32_t> parents, std::span<const Token> tokens,
                 const Sink& sink) override;

 private:
  Engine& engine_;
  std::vector<Sequence> rows_;
};

}  // namespace moestro
