// SPDX-License-Identifier: MIT
// Drafts of a text's next tokens: the choice of a drafter, drafters, and the draft under way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "core/ids.h"
#include "engine/engine.h"
#include "engine/engine_options.h"
#include "load/open_engine.h"
#include "text/draft_control.h"

namespace moestro {

// --draft: the drafter that guesses the next tokens, and the most tokens of a draft.

enum class DraftKind : uint8_t { kNone, kLittle, kNgram, kPredicting };

struct DraftOptions {
  DraftKind kind = DraftKind::kNone;
  uint32_t most = 0;  // tokens of a draft
  // Tokens are drafted by the predicting layer where the model has one, else from the text so far,
  // and not before they are expected to pay.
  bool is_auto = false;

  bool is_on() const { return kind != DraftKind::kNone; }
};

// "little", "ngram:12", "mtp:2", "auto". kUsage otherwise.
Result<DraftOptions> ParseDraft(const std::string& text);
// kUsage: the model or its engine cannot draft in that way, or the output is not exact.
Status CheckDraft(const DraftOptions& draft, const EngineOptions& engine, const ModelToLoad& model);
// Chooses the drafter that the model has, checks it as CheckDraft(), and sets what the engine must
// load for it.
Result<DraftOptions> PrepareDraft(const DraftOptions& draft, const ModelToLoad& model,
                                  EngineOptions& engine);
// REQUIRES: draft.is_on().
std::shared_ptr<DraftControl> MakeDraftControl(const DraftOptions& draft);

// Guesses the next tokens of a text. A wrong guess costs only time, because a step of the model
// checks it.

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

// Drafts with the layer of the model's file that predicts further tokens, trained for that. Each
// token costs a pass through that one layer and the head.
class PredictingDrafter final : public Drafter {
 public:
  // Both must outlive this; `sequence` is the text's sequence. REQUIRES: engine.facts().predicts().
  PredictingDrafter(Engine& engine, Sequence& sequence) : engine_(engine), sequence_(sequence) {}

  Result<Draft> Propose(std::span<const Token> text, uint32_t most) override;

 private:
  Engine& engine_;
  Sequence& sequence_;
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

// The drafts of one text: how many tokens are worth a draft now, the draft under way, and whether
// drafts have paid. A draft is computed in one step with the text's newest token; the tokens that
// the sampler then picks decide how much of it was right.
//
// Thread rule: the engine thread.

class TextDrafts {
 public:
  // Called after each round: tokens that were drafted, and those of them that the text took.
  using Told = std::function<void(uint32_t proposed, uint32_t accepted)>;

  // `drafter` and `control` must outlive this; `told` may be empty.
  TextDrafts(Drafter& drafter, DraftControl& control, Clock clock, Told told)
      : drafter_(drafter), control_(control), clock_(std::move(clock)), told_(std::move(told)) {}

  // Tokens that the next draft should have; 0: a plain step is expected to be faster.
  uint32_t wanted() const { return control_.Next(); }
  // Drafts at most `most` tokens behind `text`, whose last token has not been evaluated. Without a
  // guess tokens() stays empty. Errors as Drafter::Propose().
  Status Propose(std::span<const Token> text, uint32_t most);
  // The draft under way.
  std::span<const Token> tokens() const { return draft_.tokens; }
  // See Batch::foreseen. Once for each draft.
  std::vector<std::vector<ExpertId>> TakeForeseen() { return std::exchange(draft_.foreseen, {}); }

  // A step of the newest token alone took so many seconds, for `n_texts` texts together. The time
  // of a Propose() without a guess counts, too.
  void Plain(double seconds, uint32_t n_texts = 1);
  // The step with the draft took so many seconds, for `n_texts` texts together, and the text took
  // the first `accepted` tokens. Ends the draft.
  void Round(double step_seconds, uint32_t accepted, uint32_t n_texts = 1);
  // Ends a draft whose step was not computed.
  void Discard() { draft_ = {}; }

 private:
  Drafter& drafter_;
  DraftControl& control_;
  Clock clock_;
  Told told_;
  Draft draft_;
  double draft_seconds_ = 0.0;  // of the last Propose()
  uint32_t n_texts_ = 1;        // of the last plain step
};

}  // namespace moestro
