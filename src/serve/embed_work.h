// SPDX-License-Identifier: MIT
// Requests for embeddings in the engine thread. A chunk has the next texts of all requests, one of
// each in turn, so that a small request waits for no large one, and many small ones share a chunk.
//
// Thread rule: EmbedTask as EngineTask; EmbedWork is the engine thread's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "api/api_error.h"
#include "api/embeddings.h"
#include "core/ids.h"
#include "engine/embedder.h"
#include "serve/engine_task.h"

namespace moestro {

// A request's texts as tokens; their embeddings come back as the model gives them.
class EmbedTask : public EngineTask<Embeddings> {
 public:
  // REQUIRES: there is a text.
  explicit EmbedTask(std::vector<std::vector<Token>> texts) : texts_(std::move(texts)) {}

  const std::vector<std::vector<Token>>& texts() const { return texts_; }

 private:
  const std::vector<std::vector<Token>> texts_;
};

struct EmbedCounts {
  uint64_t finished = 0;  // requests
  uint64_t failed = 0;
  uint64_t cancelled = 0;
};

// The requests under way.
class EmbedWork {
 public:
  // `chunk`: rows that go through the layers together. The embedder must outlive this.
  EmbedWork(Embedder& embedder, uint32_t chunk) : embedder_(embedder), chunk_(chunk) {}
  // Requests that have not ended fail: the server goes down.
  ~EmbedWork() { FailAll(GoingDown()); }
  EmbedWork(const EmbedWork&) = delete;
  EmbedWork& operator=(const EmbedWork&) = delete;

  void Add(std::shared_ptr<EmbedTask> task);
  bool empty() const { return under_way_.empty(); }
  // So many requests share chunks as may; others should wait in the queue.
  bool is_full() const { return under_way_.size() >= kMost; }
  // Computes one chunk, and ends the requests whose last text was in it. An error ends the request
  // of the text that had it; the others' texts come again.
  void ComputeSome();
  void FailAll(const ApiError& error);
  const EmbedCounts& counts() const { return counts_; }

 private:
  static constexpr size_t kMost = 64;
  struct UnderWay {
    std::shared_ptr<EmbedTask> task;
    Embeddings done = {};

    size_t next() const { return done.texts(); }  // the first text without its embedding
    bool is_complete() const { return next() == task->texts().size(); }
  };
  struct Turn {
    std::vector<std::span<const Token>> texts;
    std::vector<size_t> owners;  // each text's request
  };
  Turn NextTurn() const;
  void DropCancelled();
  void Fail(size_t request, const ApiError& error);
  void EndComplete();

  Embedder& embedder_;
  const uint32_t chunk_;
  std::deque<UnderWay> under_way_;
  EmbedCounts counts_;
};

}  // namespace moestro
