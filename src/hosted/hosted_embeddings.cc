// SPDX-License-Identifier: MIT
#include "hosted/hosted_embeddings.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "hosted/context_memory.h"
#include "hosted/hosted_plan.h"
#include "hosted/llama_rows.h"

namespace moestro {

Result<size_t> HostedEmbeddings::Compute(Texts texts, const Embedder::Sink& sink) {
  const size_t n = TextsOfChunk(texts, chunk_);
  const bool is_long = texts.front().size() > chunk_;
  Status done = is_long ? ComputePieces(texts.front()) : ComputeTogether(texts.first(n));
  if (done) done = Give(n, sink);
  Forget();
  if (!done) return std::unexpected(std::move(done).error());
  return n;
}

Status HostedEmbeddings::ComputeTogether(Texts texts) {
  size_t n_rows = 0;
  for (const std::span<const Token> text : texts) n_rows += text.size();
  LlamaRows rows(n_rows);
  for (size_t text = 0; text < texts.size(); ++text) {
    for (uint32_t i = 0; i < texts[text].size(); ++i) {
      rows.Add(texts[text][i], i, static_cast<llama_seq_id>(text), true);
    }
  }
  return Decode(rows, n_rows);
}

// The embedding of the last piece, whose last token has seen all others, is the text's.
Status HostedEmbeddings::ComputePieces(std::span<const Token> text) {
  for (size_t first = 0; first < text.size(); first += chunk_) {
    const std::span<const Token> piece =
        text.subspan(first, std::min<size_t>(chunk_, text.size() - first));
    LlamaRows rows(piece.size());
    for (size_t i = 0; i < piece.size(); ++i) {
      rows.Add(piece[i], static_cast<uint32_t>(first + i), 0, true);
    }
    TRY_STATUS(Decode(rows, piece.size()));
  }
  return {};
}

// libllama makes room for logits of every row and clears it, though the model may compute none: the
// pages stay untouched until something is written there.
Status HostedEmbeddings::Decode(const LlamaRows& rows, size_t n_rows) {
  const ContextMemory untouched;
  const std::vector<RowKind> kinds(n_rows, RowKind::kPrompt);
  frame_.BeginStep({});
  frame_.AddDense(model_.whole_bytes());
  server_.Begin({.kinds = kinds, .kinds_of_outputs = kinds});
  return server_.Decode(rows, model_.context());
}

Status HostedEmbeddings::Give(size_t n_texts, const Embedder::Sink& sink) const {
  for (size_t text = 0; text < n_texts; ++text) {
    const float* const values =
        llama_get_embeddings_seq(model_.context(), static_cast<llama_seq_id>(text));
    if (values == nullptr) {
      return Fail(Errc::kUnsupported, "libllama gives no embedding of a text of this model");
    }
    const std::span<const float> embedding(values, model_.n_embd());
    if (!std::ranges::all_of(embedding, [](float value) { return std::isfinite(value); })) {
      return Fail(Errc::kInvalidFile,
                  "an embedding has values that are no numbers; the weights are damaged: fetch the "
                  "model again");
    }
    sink(text, embedding);
  }
  return {};
}

// No cell is read again, so the data may stay.
void HostedEmbeddings::Forget() {
  if (model_.memory() != nullptr) llama_memory_clear(model_.memory(), false);
}

}  // namespace moestro
