// SPDX-License-Identifier: MIT
// A model ready to write: vocabulary, sampler and engine for one text, which may be cut back,
// continued, saved and restored.
//
// Thread rule: the engine's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "engine/engine.h"
#include "load/open_engine.h"
#include "model/vocab.h"
#include "text/draft_control.h"
#include "text/drafts.h"
#include "text/sampler.h"
#include "text/text_request.h"
#include "text/text_tokens.h"

namespace moestro {

// Tokens of a session's prompts, by how their state was reached.
struct PromptCounts {
  uint64_t all = 0;
  uint64_t cached = 0;  // stood in the sequence and were not computed
  // Stood in the sequence, but behind the position to which the sequence could go back.
  uint64_t recomputed = 0;
};

class Session {
 public:
  // Loads the vocabulary and checks the sampling options, so that wrong options are reported at
  // once and texts can be tokenized while memory is free. kInvalidRequest for a model without a
  // tokenizer.
  static Result<std::unique_ptr<Session>> Load(const std::string& path, const EngineOptions& engine,
                                               const SamplingOptions& sampling);
  // Makes room for `n` forks of one sequence instead of one sequence of any length. A fork has at
  // most `n_ctx` tokens, and all forks share the first `common`. Call before Start().
  void MakeRoom(uint32_t n, uint32_t common, uint32_t n_ctx);
  // Continues texts with drafts that are checked. The tokens are those without drafts, and often
  // come faster. Errors: those of CheckDraft(). Call before Start().
  Status DraftWith(const DraftOptions& draft);
  // Opens the engine, which takes the rest of the memory. Call before the functions below.
  // `progress` lives as long as the engine.
  Status Start(Progress progress = {});

  // Restores the sequence that was saved in a file; without this file the session begins empty.
  // Errors: those of Engine::RestoreSequence() and kv_origin().
  Status Resume(const std::string& path);
  // Saves the sequence with notes(), the last token included.
  Status Save(const OutputPath& path);
  // Whether Save() would write anything.
  bool has_text() const { return sequence_->position() + pending_.size() > 0; }
  // Notes that are saved with a sequence: a conversation's messages, as JSON.
  std::string& notes() { return notes_; }
  // Sets the positions that later texts are likely to go on from, rising: for models with states,
  // which cannot be cut back to other positions. Continue() keeps them.
  void KeepAt(std::vector<uint32_t> positions) { kept_ = std::move(positions); }

  const Vocab& vocab() const { return vocab_; }
  const ContextLimit& limit() const { return limit_; }
  Engine& engine() { return *engine_; }
  const PromptCounts& prompts() const { return prompts_; }
  // nullptr: nothing is drafted.
  const DraftControl* draft_control() const { return draft_control_.get(); }
  Sequence& sequence() { return *sequence_; }

  // The tokens of a text, at most one more than the context holds, with the tokens of
  // Vocab::AddSpecial(), and control tokens where the text spells them.
  Result<std::vector<Token>> Tokenize(std::string_view text) const;

  // Changes the text to `tokens` and continues it (text/text_loop.h). Tokens that the sequence
  // already has at its start are used again. `emit` is called with text as soon as it is certain,
  // in whole UTF-8 characters; false: the caller takes no more text. Engine::RequestStop() ends the
  // text with StopReason::kInterrupted if `is_stopped` returns true. Otherwise the stop was for an
  // earlier text, and this text goes on. Errors: kInvalidRequest for a text that is empty or does
  // not fit; those of Engine::Step() and Sampler::Pick(). Text made before an error has been
  // emitted.
  Result<Generated> Continue(
      std::span<const Token> tokens, const GenerateOptions& options,
      const std::function<bool(std::string_view)>& emit,
      const std::function<bool()>& is_stopped = [] { return true; });

 private:
  Session(Vocab vocab, Sampler sampler) : vocab_(std::move(vocab)), sampler_(std::move(sampler)) {}

  std::optional<ModelToLoad> model_;  // empty once the engine has the model
  EngineOptions options_;
  DraftOptions draft_;
  std::shared_ptr<DraftControl> draft_control_;  // of all texts; null: no drafts
  ContextLimit limit_;
  Vocab vocab_;
  Sampler sampler_;  // borrows vocab_'s data
  std::unique_ptr<Engine> engine_;
  std::optional<Sequence> sequence_;
  std::string notes_;
  std::vector<uint32_t> kept_;
  PromptCounts prompts_;
  std::vector<Token> pending_;  // emitted, but not yet part of the sequence
};

}  // namespace moestro
