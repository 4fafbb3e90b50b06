// SPDX-License-Identifier: MIT
// The second contract of an engine, where its model makes embeddings of texts instead of writing
// them. No sequence lives in such an engine.
//
// Thread rule: that of Engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/result.h"
#include "core/ids.h"

namespace moestro {

class Embedder {
 public:
  virtual ~Embedder() = default;

  virtual uint32_t n_embd() const = 0;  // values of an embedding

  using Texts = std::span<const std::span<const Token>>;
  // Receives an embedding: the text's index, and n_embd() values as the model gives them, which
  // live until the next call.
  using Sink = std::function<void(size_t text, std::span<const float> values)>;
  // Computes the embeddings of the first texts: of as many as go through the layers together, of
  // one at least. Returns their number. kInvalidRequest: a text is empty or longer than the
  // context, or a token is out of range. Other errors: those of Engine::Step(), after which the
  // embeddings that the sink has received are right. REQUIRES: there is a text.
  virtual Result<size_t> Embed(Texts texts, const Sink& sink) = 0;
};

}  // namespace moestro
