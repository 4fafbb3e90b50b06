// SPDX-License-Identifier: MIT
// --draft: the drafter that guesses the next tokens, and the most tokens of a draft.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/engine_options.h"
#include "load/model_to_load.h"

namespace moestro {

enum class DraftKind : uint8_t { kNone, kLittle, kNgram };

struct DraftOptions {
  DraftKind kind = DraftKind::kNone;
  uint32_t most = 0;  // tokens of a draft

  bool is_on() const { return kind != DraftKind::kNone; }
};

// "little", "ngram:12". kUsage otherwise.
Result<DraftOptions> ParseDraft(const std::string& text);
// kUsage: the model or its engine cannot draft with fewer experts, or the output is not exact.
Status CheckDraft(const DraftOptions& draft, const EngineOptions& engine, const ModelToLoad& model);
// Bytes for the logits of a draft's rows, beside the engine.
uint64_t DraftBytes(const DraftOptions& draft, uint32_t n_vocab);

}  // namespace moestro
