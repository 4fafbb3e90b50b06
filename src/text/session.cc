// SPDX-License-Identifier: MIT
#include "text/session.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "base/small_file.h"
#include "engine/append.h"
#include "load/open_engine.h"
#include "text/drafting_stepper.h"
#include "text/engine_stepper.h"

namespace moestro {

Result<std::unique_ptr<Session>> Session::Load(const std::string& path, const EngineOptions& engine,
                                               const SamplingOptions& sampling) {
  // Our own reader goes first: it survives damaged files, which libllama's need not.
  TRY(ModelToLoad model, ModelToLoad::Open(path, engine.engine));
  TRY(Vocab vocab, Vocab::Load(model.gguf()));
  if (!vocab.has_text()) {
    return Fail(Errc::kInvalidRequest,
                "{} has no tokenizer, so it can neither read nor write text; 'moestro bench' and "
                "'moestro logits --tokens' work on it",
                path);
  }
  const uint32_t n_ctx = std::min(engine.ctx, model.n_ctx_train());
  TRY(Sampler sampler, Sampler::Create(sampling, vocab, model.n_vocab(), n_ctx));
  std::unique_ptr<Session> session(new Session(std::move(vocab), std::move(sampler)));
  session->limit_ = {.n_ctx = n_ctx, .n_ctx_train = model.n_ctx_train()};
  session->options_ = engine;
  session->model_ = std::move(model);
  return session;
}

void Session::MakeRoom(uint32_t n, uint32_t common, uint32_t n_ctx) {
  options_.sequences = n;
  options_.common_positions = common;
  options_.ctx = n_ctx;
}

Status Session::DraftWith(const DraftOptions& draft) {
  TRY_STATUS(CheckDraft(draft, options_, *model_));
  draft_ = draft;
  if (draft.is_on()) draft_control_.emplace(draft.most);
  options_.caller_bytes += DraftBytes(draft, model_->n_vocab());
  return {};
}

Status Session::Start(Progress progress) {
  TRY(engine_, OpenEngine(*std::exchange(model_, std::nullopt), options_, std::move(progress)));
  sequence_.emplace(engine_->NewSequence());
  LogInfo("{}", engine_->facts().description);
  return {};
}

Status Session::Resume(const std::string& path) {
  // Gets the origin that Save() needs now, before a text is written that could not be saved.
  TRY([[maybe_unused]] const KvOrigin origin, engine_->kv_origin());
  if (IsAbsent(path)) return {};
  TRY(SavedSequence saved, engine_->RestoreSequence(path));
  sequence_ = std::move(saved.sequence);
  notes_ = std::move(saved.notes);
  return {};
}

Status Session::Save(const OutputPath& path) {
  const bool has_room = sequence_->position() + pending_.size() <= engine_->n_ctx();
  if (!pending_.empty() && has_room) {
    auto appended = Append(*engine_, *sequence_, pending_);
    // A stop that comes as the text ends was meant for the text.
    if (!appended && appended.error().code == Errc::kInterrupted) {
      appended = Append(*engine_, *sequence_, pending_);
    }
    if (!appended) return std::unexpected(std::move(appended).error());
    pending_.clear();
  }
  return engine_->SaveSequence(*sequence_, notes_, path);
}

// Beside the engine a stretch without a place to cut may take 12 MiB, which the plan's share for
// the process covers.
Result<std::vector<Token>> Session::Tokenize(std::string_view text) const {
  TokenStream stream(vocab_, FromText(text),
                     {.parse_special = true, .longest_piece_bytes = 32 * kKiB});
  return Collect(stream, uint64_t{limit_.n_ctx} + 1);
}

Result<Generated> Session::Continue(std::span<const Token> tokens, const GenerateOptions& options,
                                    const std::function<bool(std::string_view)>& emit,
                                    const std::function<bool()>& is_stopped) {
  EngineStepper plain(*engine_, *sequence_, kept_);
  const std::unique_ptr<Drafter> drafter = MakeDrafter(draft_.kind, *engine_, *sequence_);
  std::optional<DraftingStepper> drafting;
  if (drafter) {
    drafting.emplace(plain, *drafter, *draft_control_, SteadySeconds,
                     [this](uint32_t proposed, uint32_t accepted) {
                       engine_->stats().NoteDrafts(proposed, accepted);
                     });
  }
  Stepper& stepper = drafting ? static_cast<Stepper&>(*drafting) : plain;
  const TextParts parts{.pick = [this](std::span<const float> l) { return sampler_.Pick(l); },
                        .piece = [this](Token token) { return vocab_.Piece(token); },
                        .is_end = [this](Token token) { return vocab_.is_end(token); },
                        .emit = emit};
  // At least one token must be evaluated again: its logits are gone.
  const size_t longest = tokens.empty() ? 0 : tokens.size() - 1;
  const size_t kept = std::min(CommonPrefix(sequence_->tokens(), tokens), longest);
  sampler_.RestartGrammar();
  sampler_.Observe(tokens.subspan(kept));
  Result<Generated> result = Fail(Errc::kInterrupted, "");
  uint32_t reached = 0;
  do {
    reached = sequence_->GoBack(static_cast<uint32_t>(kept));
    result = Generate(stepper, parts, tokens.subspan(reached), options);
    if (!drafting) continue;
    const Status finished = drafting->Finish();
    if (result && !finished) result = std::unexpected(finished.error());
  } while (result && result->reason == StopReason::kInterrupted && !is_stopped());
  prompts_.all += tokens.size();
  prompts_.cached += reached;
  prompts_.recomputed += kept - reached;
  pending_.clear();
  if (result) {  // the last token is not evaluated unless a call needs its logits
    std::vector<Token> all(tokens.begin(), tokens.end());
    all.insert(all.end(), result->tokens.begin(), result->tokens.end());
    const size_t evaluated = std::min<size_t>(sequence_->position(), all.size());
    pending_.assign(all.begin() + static_cast<std::ptrdiff_t>(evaluated), all.end());
  }
  return result;
}

}  // namespace moestro
