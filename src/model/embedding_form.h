// SPDX-License-Identifier: MIT
// The form of the embeddings that a file's model gives: one vector for each text. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/gguf_file.h"

namespace moestro {

// The way from a vector for each token to one for the text, as the file names it. Values are
// libllama's.
enum class Pooling : uint8_t { kNone, kMean, kCls, kLast, kRank };
std::string_view ToText(Pooling pooling);  // "none", "mean", "cls", "last", "rank"

struct EmbeddingForm {
  Pooling pooling = Pooling::kNone;
  bool is_causal = true;  // a token attends to earlier ones alone
  uint32_t n_embd = 0;    // values of a vector

  // Whether the model is one for embeddings: the file names a way to one vector for each text.
  bool gives_embeddings() const { return pooling != Pooling::kNone && pooling != Pooling::kRank; }
  // A text longer than a chunk may be computed piece by piece: only its last token's vector counts,
  // and no token attends to later ones.
  bool may_split() const { return pooling == Pooling::kLast && is_causal; }
};

// kInvalidFile: a key has a wrong type, or names a pooling that libllama does not have.
Result<EmbeddingForm> ReadEmbeddingForm(const GgufFile& file);

// Why a model of this form gives no embeddings; one sentence without a full stop. REQUIRES:
// !form.gives_embeddings().
std::string NoEmbeddingsText(Pooling pooling);

}  // namespace moestro
