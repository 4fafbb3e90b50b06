// SPDX-License-Identifier: MIT
// A model ready to write: vocabulary, sampler and engine around one text, which may be cut back,
// continued, saved and taken up again.
//
// Thread rule: the engine's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "load/model_to_load.h"
#include "model/vocab.h"
#include "text/draft_control.h"
#include "text/draft_options.h"
#include "text/drafter.h"
#include "text/generate.h"
#include "text/sampler.h"
#include "text/text_tokens.h"

namespace moestro {

class Session {
 public:
  // Loads the vocabulary and checks the sampling options, so that cheap mistakes are reported at
  // once and texts can be tokenized while there is memory. kInvalidRequest for a model without a
  // tokenizer.
  static Result<std::unique_ptr<Session>> Load(const std::string& path, const EngineOptions& engine,
                                               const SamplingOptions& sampling);
  // Instead of one sequence of any length there is to be room for `n` forks of one, of at most
  // `n_ctx` tokens, the first `common` of which are the same. Before Start().
  void MakeRoom(uint32_t n, uint32_t common, uint32_t n_ctx);
  // Texts are continued with drafts that are checked: faster where that pays, the same tokens.
  // Errors: what CheckDraft() says. Before Start().
  Status DraftWith(const DraftOptions& draft);
  // Opens the engine, which takes the memory that is left. What follows needs it. `progress` lives
  // as long as the engine.
  Status Start(Progress progress = {});

  // Takes up the sequence that was saved in a file; without that file the session begins empty.
  // Errors: what Engine::RestoreSequence() and kv_origin() say.
  Status Resume(const std::string& path);
  // Saves the sequence with notes(), the last token included.
  Status Save(const std::string& path);
  // What is kept with a saved sequence besides its tokens: a conversation's messages, as JSON.
  std::string& notes() { return notes_; }

  const Vocab& vocab() const { return vocab_; }
  const ContextLimit& limit() const { return limit_; }
  Engine& engine() { return *engine_; }
  Sequence& sequence() { return *sequence_; }

  // The tokens of a text with all its special ones, at most one more than the context holds.
  // Those that begin and end a text only if it does not spell them itself (add_special).
  Result<std::vector<Token>> Tokenize(std::string_view text, bool parse_special,
                                      bool add_special = true) const;

  // Makes the text be `tokens`, reusing what it already has in common with them, and continues it.
  // `emit` as in TextParts. Engine::RequestStop() ends it with StopReason::kInterrupted if
  // `is_stopped` says that the stop is for this text; one that came too late for the text before is
  // not, and the text begins again.
  Result<Generated> Continue(
      std::span<const Token> tokens, const GenerateOptions& options,
      const std::function<bool(std::string_view)>& emit,
      const std::function<bool()>& is_stopped = [] { return true; });

 private:
  std::unique_ptr<Drafter> MakeDrafter();  // nullptr: without drafts
  Session(Vocab vocab, Sampler sampler) : vocab_(std::move(vocab)), sampler_(std::move(sampler)) {}

  std::optional<ModelToLoad> model_;  // until the engine has it
  EngineOptions options_;
  DraftOptions draft_;
  std::optional<DraftControl> draft_control_;  // with drafts
  ContextLimit limit_;
  Vocab vocab_;
  Sampler sampler_;  // borrows vocab_'s data
  std::unique_ptr<Engine> engine_;
  std::optional<Sequence> sequence_;
  std::string notes_;
  std::vector<Token> pending_;  // said, but not part of the sequence yet
};

}  // namespace moestro
