// SPDX-License-Identifier: MIT
// The hosted engine: libllama's forward pass, unchanged, on our residency. It runs every model with
// experts that libllama supports. libllama uses the file as mapped memory. Other memory lies at the
// mapped addresses, and an expert is read into this memory when the graph has chosen the expert
// (hosted/graph_server.h). docs/hosted.md lists the engine's features and the errors that end the
// process.
//
// Thread rule: that of Engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/embedder.h"
#include "engine/engine.h"
#include "kit/slot_engine.h"
#include "model/gguf_file.h"

namespace moestro {

// The use that an engine is opened for: libllama's context gives logits, or embeddings of texts.
enum class HostedUse : uint8_t { kText, kEmbeddings };

class HostedEngine final : public SlotEngine, private Embedder {
 public:
  // kUnsupported: an option needs the native engine, or libllama's graph cannot be served;
  // kInvalidFile: libllama cannot read the model; kInvalidRequest: the budget is too small (names
  // the smallest that works); kIo; kNoMemory.
  static Result<std::unique_ptr<HostedEngine>> Open(GgufFile file, const EngineOptions& options,
                                                    Progress progress = {},
                                                    HostedUse use = HostedUse::kText);
  ~HostedEngine() override;
  // The plan of the budget, without reading a weight. Errors: those of Open(), except kIo while
  // reading.
  static Result<MemoryPlan> Plan(GgufFile file, const EngineOptions& options,
                                 HostedUse use = HostedUse::kText);
  // nullptr: the engine was opened for text.
  Embedder* embedder();

  const EngineFacts& facts() const override;
  Result<KvOrigin> kv_origin() override;
  Status SaveSequence(const Sequence& sequence, const std::string& notes,
                      const OutputPath& path) override;
  Result<SavedSequence> RestoreSequence(const std::string& path) override;
  Result<SavedTokens> PeekSequence(const std::string& path) override;

 private:
  struct Running;
  class Chunks;
  explicit HostedEngine(std::unique_ptr<Running> running);
  EngineKit* kit() const override;
  StepSequences& sequences() const override;
  Status CheckMore(const Batch& batch) const override;
  Status Compute(const Batch& batch, const LogitsSink& sink) override;
  std::unique_ptr<StepPieces> PiecesOf(const Batch& batch, LogitsSink sink) override;
  uint32_t n_embd() const override;
  Result<size_t> Embed(Texts texts, const Sink& sink) override;

  std::unique_ptr<Running> running_;
};

}  // namespace moestro
