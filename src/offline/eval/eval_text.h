// SPDX-License-Identifier: MIT
// Texts cut into windows of a context's length, for teacher-forced evaluation. For a model with an
// encoder a window is a source with spans cut out, and the target that fills them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/binary_file.h"
#include "base/output_file.h"
#include "base/result.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "engine/engine_options.h"
#include "load/open_engine.h"
#include "model/model_file.h"

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

// The exact run's log-probabilities in a file: too many for memory (a vocabulary for each token),
// in F32 as they were computed.
//
// The file: header (magic, version, ReferenceInfo), a row [n_vocab] F32 for each evaluated token,
// checksum. See base/binary_file.h.

// Identity of a reference: its model and its text. A file of another identity is refused.
struct ReferenceInfo {
  uint64_t fingerprint = 0;  // of the model's header
  uint64_t weights = 0;      // model/weights_id.h
  uint64_t token_hash = 0;   // EvalText::Hash()
  uint64_t rows = 0;
  uint32_t n_vocab = 0;
  uint32_t n_ctx = 0;

  uint64_t file_bytes() const;
  // Fills all members but the weights' number, which takes reading.
  static ReferenceInfo Of(const ModelFile& model, const EvalText& text);
};

class ReferenceWriter {
 public:
  // kIo, also when the file system has no room for all of it (names the remedy).
  static Result<ReferenceWriter> Create(const OutputPath& path, const ReferenceInfo& info);
  Status Add(std::span<const float> row);
  // Gives the file its name; a file without its name disappears by itself.
  Status Finish() { return writer_.Finish(); }

 private:
  explicit ReferenceWriter(BinaryWriter writer) : writer_(std::move(writer)) {}

  BinaryWriter writer_;
};

class ReferenceReader {
 public:
  // kIo; kInvalidFile for a damaged file; kInvalidRequest for the file of another model or text
  // than `info`.
  static Result<ReferenceReader> Open(const std::string& path, const ReferenceInfo& info);
  // The row at `index`, valid until the next call. REQUIRES: index < ReferenceInfo::rows.
  Result<std::span<const float>> Row(uint64_t index);

 private:
  ReferenceReader(InputFile file, uint32_t n_vocab) : file_(std::move(file)), row_(n_vocab) {}

  InputFile file_;
  std::vector<float> row_;
};

// Folder for large temporary files: `asked`, or else the folder of `text`, or the current folder if
// that one cannot be written. kInvalidRequest when `asked` is empty and files in the folder would
// lie in memory; kIo for a folder that does not exist or cannot be written.
Result<std::string> ScratchFolder(const std::string& asked, const std::string& text);

}  // namespace moestro
