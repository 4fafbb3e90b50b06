// SPDX-License-Identifier: MIT
#include "speed/side_by_side.h"

#include <random>
#include <utility>

#include "core/batch.h"
#include "core/random_tokens.h"
#include "engine/append.h"
#include "native/native_engine.h"
#include "speed/logits_hash.h"
#include "text/drafter.h"

namespace moestro {
namespace {

// Drafts of another drafter, at its price, made right with some probability.
class ForcedDrafter final : public Drafter {
 public:
  ForcedDrafter(std::unique_ptr<Drafter> drafter, std::span<const Token> text, double right,
                uint32_t seed)
      : drafter_(std::move(drafter)), text_(text), right_(right), random_(seed) {}

  Result<Draft> Propose(std::span<const Token> text, uint32_t most) override {
    TRY(Draft draft, drafter_->Propose(text, most));
    draft.tokens.clear();
    for (size_t at = text.size(); at < text_.size() && draft.tokens.size() < most; ++at) {
      const bool is_right = std::uniform_real_distribution<double>()(random_) < right_;
      const Token other = text_[at] > 0 ? text_[at] - 1 : 1;
      draft.tokens.push_back(is_right ? text_[at] : other);
    }
    return draft;
  }

 private:
  std::unique_ptr<Drafter> drafter_;
  std::span<const Token> text_;
  double right_;
  std::mt19937 random_;
};

}  // namespace

SideBySide::SideBySide(Engine& engine, const SideBySideOptions& options)
    : options_(options), engine_(engine) {
  for (uint32_t i = 0; i < options.sequences; ++i) {
    // The first sequence has the tokens of a run of one sequence; seed + 1 is the warm-up's.
    tokens_.push_back(RandomTokens(size_t{options.depth} + options.prefill + options.decode,
                                   engine.facts().n_vocab,
                                   i == 0 ? options.seed : options.seed + 1 + i));
    if (options.depth == 0) {
      MakePrompt(engine.facts().encoder, options.prefill, tokens_.back());
    }
    sequences_.push_back(engine.NewSequence());
  }
  for (Sequence& sequence : sequences_) pointers_.push_back(&sequence);
  if (options.draft.is_on()) PrepareDrafts();
}

void SideBySide::PrepareDrafts() {
  plain_.emplace(engine_, sequences_.front());
  drafter_ = MakeDrafter(options_.draft.kind, engine_, sequences_.front());
  if (options_.acceptance) {
    drafter_ = std::make_unique<ForcedDrafter>(std::move(drafter_), tokens_.front(),
                                               *options_.acceptance, options_.seed);
  }
  control_.emplace(options_.draft.most);
  drafting_.emplace(*plain_, *drafter_, *control_, SteadySeconds,
                    [this](uint32_t proposed, uint32_t accepted) {
                      engine_.stats().NoteDrafts(proposed, accepted);
                    });
}

Status SideBySide::MakeUpDepth() {
  if (options_.depth == 0) return {};
  TRY(NativeEngine* const native, AsNative(engine_, "--depth"));
  for (size_t i = 0; i < sequences_.size(); ++i) {
    TRY_STATUS(native->MakeUp(sequences_[i], std::span(tokens_[i]).first(options_.depth),
                              uint64_t{options_.seed} + i));
  }
  return {};
}

Status SideBySide::Prefill() {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    TRY(const std::span<const float> logits,
        Append(engine_, sequences_[i],
               std::span(tokens_[i]).subspan(options_.depth, options_.prefill)));
    hash_ = HashLogits(logits);
  }
  return {};
}

Status SideBySide::Decode() {
  if (drafting_) return DecodeDrafted();
  Batch batch;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const uint32_t at = sequences_[i].position();
    batch.rows.push_back({.sequence = sequences_[i].id(),
                          .position = at,
                          .token = tokens_[i][at],
                          .wants_logits = true});
  }
  const bool is_last = batch.rows.front().position + 1 == tokens_.front().size();
  return engine_.Step(batch, [&](size_t, std::span<const float> logits) {
    if (is_last) hash_ = HashLogits(logits);
  });
}

Status SideBySide::DecodeDrafted() {
  const uint32_t at = drafting_->position();
  const Token token = tokens_.front()[at];
  TRY(const std::span<const float> logits, drafting_->Append({&token, 1}));
  if (at + 1 == tokens_.front().size()) hash_ = HashLogits(logits);
  return {};
}

Status SideBySide::Finish() { return drafting_ ? drafting_->Finish() : Status(); }

}  // namespace moestro
