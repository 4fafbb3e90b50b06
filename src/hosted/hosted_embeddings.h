// SPDX-License-Identifier: MIT
// The embeddings of texts, by a context of libllama that was made for them. Several short texts go
// through the layers together, each as a sequence of its own; a long text goes in pieces if its
// model allows that. Cells of a text are given back with its embedding.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "core/ids.h"
#include "engine/embedder.h"
#include "hosted/graph_server.h"
#include "hosted/hosted_model.h"

namespace moestro {

class HostedEmbeddings {
 public:
  using Texts = Embedder::Texts;

  // `chunk`: rows that go through the layers together. All must outlive this.
  HostedEmbeddings(HostedModel& model, GraphServer& server, StepFrame& frame, uint32_t chunk)
      : model_(model), server_(server), frame_(frame), chunk_(chunk) {}

  // As Embedder::Embed(), for texts that fit the context. After an error no cell is in use.
  Result<size_t> Compute(Texts texts, const Embedder::Sink& sink);

 private:
  Status ComputeTogether(Texts texts);
  Status ComputePieces(std::span<const Token> text);
  Status Decode(const LlamaRows& rows, size_t n_rows);
  Status Give(size_t n_texts, const Embedder::Sink& sink) const;
  void Forget();

  HostedModel& model_;
  GraphServer& server_;
  StepFrame& frame_;
  const uint32_t chunk_;
};

}  // namespace moestro
