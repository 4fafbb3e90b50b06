// SPDX-License-Identifier: MIT
// Texts cut into windows of a context's length, for teacher-forced evaluation. For a model with an
// encoder a window is a source with spans cut out, and the target that fills them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "engine/engine_options.h"
#include "load/model_to_load.h"

namespace moestro {

struct TextRequest {
  std::vector<std::string> paths;
  uint64_t tokens = 0;  // to evaluate, of all texts together; 0: all
  // Only positions from here on in each window are evaluated, and each window begins as the
  // vocabulary begins a text (llama-perplexity does that with half a context). 0: every position of
  // the text as it is. Not with an encoder, where all of a target is evaluated.
  uint32_t score_from = 0;
};

// Each window is a sequence of its own. A position is evaluated if it is not below the window's
// first one and its window has a token after it.
struct EvalText {
  struct Window {
    size_t text = 0;
    size_t begin = 0;
    size_t length = 0;
    size_t first = 0;     // position to be evaluated
    size_t together = 1;  // tokens that begin the window in one step: a source and one more

    size_t n_evaluated() const { return length - first - 1; }
  };
  std::vector<std::vector<Token>> texts = {};
  std::vector<Window> windows = {};  // each with a position to evaluate
  uint32_t n_ctx = 0;
  uint32_t n_vocab = 0;
  uint32_t score_from = 0;

  std::span<const Token> tokens_of(const Window& window) const {
    return std::span(texts[window.text]).subspan(window.begin, window.length);
  }
  uint64_t n_evaluated() const;
  uint64_t n_blocks(size_t block_tokens) const;  // of evaluated tokens, none in two windows
  uint64_t Hash() const;                         // of all windows' tokens and evaluated positions
};

// Facts of the model that reads a text.
struct TextModel {
  const GgufFile& gguf;
  uint32_t n_ctx_train = 0;
  uint32_t n_vocab = 0;
  std::optional<EncoderSpec> encoder = {};

  static TextModel Of(const ModelToLoad& model) {
    return {.gguf = model.gguf(),
            .n_ctx_train = model.n_ctx_train(),
            .n_vocab = model.n_vocab(),
            .encoder = model.encoder()};
  }
};

// Tokenizes the texts as ReadPrompt() does, each as a whole, then cuts them. The vocabulary is
// freed afterwards. kInvalidRequest: the context leaves no position to evaluate, or no text has
// one; kUsage: score_from with an encoder; and errors of OpenText(), TokenizeText() and
// FindSpanTokens().
Result<EvalText> ReadEvalText(const TextModel& model, const TextRequest& request,
                              const EngineOptions& options);

}  // namespace moestro
