// SPDX-License-Identifier: MIT
// Guesses the next tokens of a text. A wrong guess costs only time, because a step of the model
// checks it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "engine/engine.h"
#include "text/draft_options.h"

namespace moestro {

struct Draft {
  std::vector<Token> tokens;
  // The experts that the checking step will probably need, see Batch::foreseen; often empty.
  std::vector<std::vector<ExpertId>> foreseen = {};
};

// Thread rule: that of Engine.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // At most `most` tokens that may follow `text`, whose last token has not been evaluated; no token
  // if the drafter has no guess. Errors, kInterrupted among them, leave the sequence as it was.
  virtual Result<Draft> Propose(std::span<const Token> text, uint32_t most) = 0;
};

// Drafts with the model itself, with fewer experts, and with experts in memory where possible.
// Missing experts are left out, so that a draft reads no expert. The experts that the draft's
// routers choose are read ahead for the step that checks the draft.
class LittleDrafter final : public Drafter {
 public:
  // Both must outlive this; `sequence` is the text's sequence. REQUIRES: the model uses more than
  // one expert for a token.
  LittleDrafter(Engine& engine, Sequence& sequence);

  Result<Draft> Propose(std::span<const Token> text, uint32_t most) override;

 private:
  Status Add(Token token, Draft& draft);

  Engine& engine_;
  Sequence& sequence_;
  LittleStep little_;
};

// Drafts the tokens that followed the same few tokens earlier in the text: names, quotations, code.
// Needs no model.
class NgramDrafter final : public Drafter {
 public:
  // Drafts the tokens after the latest earlier place that matches the end of the text. The longest
  // match is used, of four to two tokens.
  Result<Draft> Propose(std::span<const Token> text, uint32_t most) override;
};

// The drafter of `kind` for the text of `sequence`; null: kNone. Both references must outlive the
// drafter.
std::unique_ptr<Drafter> MakeDrafter(DraftKind kind, Engine& engine, Sequence& sequence);

}  // namespace moestro
